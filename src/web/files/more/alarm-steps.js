// The times at which the channels of a user are tried for an alarm, as the service has them.

/** Seconds between the first steps of those who choose no times. */
const USUAL_PAUSE = 60;

/**
 * The seconds of each channel, where the rules name no steps: browsers at once, then the others one by one.
 * @param {Pick<Api["AlarmRules"], "steps">} rules @param {{ id: string, kind: string }[]} channels oldest first
 * @returns {Map<string, number>} by id
 */
export function planOf({ steps }, channels) {
  if (steps.length > 0) return new Map(steps.flatMap((step) => step.channels.map((id) => [id, step.afterSeconds])));
  const browsers = channels.filter(({ kind }) => kind === "webPush");
  const others = channels.filter(({ kind }) => kind !== "webPush");
  const first = browsers.length > 0 ? 1 : 0;
  return new Map([
    ...browsers.map(({ id }) => /** @type {[string, number]} */ ([id, 0])),
    ...others.map(({ id }, place) => /** @type {[string, number]} */ ([id, (place + first) * USUAL_PAUSE])),
  ]);
}

/** The steps for these channels with their seconds: those of the same time are one. @param {[string, number][]} times */
export function stepsOf(times) {
  const seconds = [...new Set(times.map(([, after]) => after))].sort((a, b) => a - b);
  /** @param {number} after */
  const at = (after) => times.filter(([, seconds]) => seconds === after).map(([id]) => id);
  return seconds.map((afterSeconds) => ({ afterSeconds, channels: at(afterSeconds) }));
}
