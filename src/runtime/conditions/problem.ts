/**
 * Conditions: what is wrong, as a value that travels from the stage that sees it to the operator, and logs that
 * strangers cannot fill (bounded-log.ts). Nothing rests here.
 */
/**
 * Something that is wrong, in one sentence, and the operator's next step in another: what `/readyz`, the log and
 * `tributary status` tell.
 */
export interface Problem {
  readonly what: string;
  /** Says what to do whatever the figures in `what` are: two problems with the same next step are one. */
  readonly todo: string;
  /** When it was first found, ISO 8601; absent where nobody watches, as in a stage that only knows what holds now. */
  readonly since?: string;
}
