const uform = require("uform");
const { checks } = require("../checks.cjs");

for (const [name, check] of Object.entries(checks)) test(name, () => check(uform, expect));
