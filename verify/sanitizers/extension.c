/* What the instrumented library wants of whom it is linked into; programs have their own. */
#include <stdio.h>
#include <stdlib.h>

void callgate_panicked(void);
void callgate_panicked(void) {
    fputs("the library panicked\n", stderr);
    abort();
}

/* Never called: nothing unwinds. */
void rust_eh_personality(void);
void rust_eh_personality(void) { abort(); }
