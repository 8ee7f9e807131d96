"use strict";
const assert = require("node:assert/strict");

exports.admitOneRefuseOne = function admitOneRefuseOne({ Gate, RateLimit, Refused }) {
  const gate = new Gate({
    limits: { caller: new RateLimit(1, { per: "1h" }) },
    policies: { authenticated: [["caller", "caller"]] },
    capacity: 16,
  });
  const call = { caller: "user:1001" };
  assert.equal(gate.tryAdmit("authenticated", call).admitted, true);
  const decision = gate.tryAdmit("authenticated", call);
  assert.equal(decision.admitted, false);
  assert.ok(decision.retryAfterNs > 3500n * 10n ** 9n && decision.retryAfterNs <= 3600n * 10n ** 9n);
  assert.throws(() => gate.admit("authenticated", call), Refused);
  gate.close();
};

exports.admitOneRefuseOne(require("callgate"));
