/** What a command could not do, in words for the person who started it. */
export class Failure extends Error {}

/** The command line was not understood, or asks for what cannot be. */
export class UsageError extends Failure {}
