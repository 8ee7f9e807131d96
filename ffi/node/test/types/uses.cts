// The same package from CommonJS, compiled only.

import callgate = require("callgate");
import prometheus = require("callgate/prometheus");

const gate = new callgate.Gate({ limits: { a: new callgate.RateLimit(1) }, policies: { p: [["a", "shared"]] } });
const permit: callgate.Permit | null = gate.tryAdmit("p").permit;
// @ts-expect-error there is no such class
console.log(permit, new prometheus.CallgateCollector(gate), callgate.Sieve);
