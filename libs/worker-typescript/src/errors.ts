/** What a body may throw, and what it may have to catch. */

/** Thrown by a body that knows that trying again would not help. */
export class Fatal extends Error {
  override name = "Fatal";
}

/** What a body wanted to activate cannot be: the message lists all that is wrong. */
export class ActivationRefused extends Error {
  override name = "ActivationRefused";
}

/** Nobody answered whether something may be activated; nothing was. */
export class ActivationUnavailable extends Error {
  override name = "ActivationUnavailable";
}

/** The run is over, or was taken away from this worker. */
export class LeaseLost extends Error {
  override name = "LeaseLost";
}
