// A process of workers.test.mjs: it says what attaching to a gate of its parent comes to.

import { Gate } from "callgate";

try {
  Gate.attach(JSON.parse(process.argv[2]));
  process.send(null);
} catch ({ name, field }) {
  process.send({ name, field });
}
