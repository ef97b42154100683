/** Errors that a body throws or catches. */

/** Thrown by a body to fail without a retry. */
export class Fatal extends Error {
  override name = "Fatal";
}

/** An activation is not valid: the message lists every problem. */
export class ActivationRefused extends Error {
  override name = "ActivationRefused";
}

/** No scheduler answered, so nothing was activated. */
export class ActivationUnavailable extends Error {
  override name = "ActivationUnavailable";
}

/** The run has ended, or was taken away from this worker. */
export class LeaseLost extends Error {
  override name = "LeaseLost";
}
