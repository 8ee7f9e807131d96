import { debuglog } from "node:util";

const debug = debuglog("callgate");

/**
 * Where this package's messages go: standard error, since standard output may be a transport of the
 * protocol. Information is only written with `NODE_DEBUG=callgate`. Put functions of your own here to
 * have the messages elsewhere; they never hold an identity or a key.
 */
export const logger = {
  info(message: string): void {
    debug("%s", message);
  },
  warn(message: string): void {
    console.warn(`callgate: ${message}`);
  },
  error(message: string): void {
    console.error(`callgate: ${message}`);
  },
};
