/**
 * Conditions: what is wrong, as a value that travels from the stage that sees it to the operator, and logs that
 * strangers cannot fill (bounded-log.ts). Nothing rests here.
 */

/**
 * The closed list of problems and notices, by what an operator's rules may match; `what` and `todo` are for people and
 * may be reworded. docs/operating.md says how much each hurries.
 */
export const problemCodes = [
  'access_missing',
  'access_unreadable',
  'agents_unparsed',
  'broker_clock_ahead',
  'broker_frozen',
  'broker_hung',
  'broker_overloaded',
  'broker_refuses',
  'broker_silent',
  'broker_store_replaced',
  'broker_unconfirmed',
  'claim_missing',
  'clock_behind_lake',
  'descriptors_exhausted',
  'enrichment_failing',
  'erased_ids_damaged',
  'events_failed',
  'export_met_damage',
  'export_request_unreadable',
  'exports_unreadable',
  'file_unsealed',
  'files_unsealed',
  'flush_failing',
  'folder_lost',
  'foreign_commit',
  'geo_database_unreadable',
  'keys_unknown',
  'lake_disk_low',
  'lake_unreadable',
  'lake_unwritable',
  'link_keys_renewed',
  'link_keys_unreadable',
  'maintenance_failing',
  'manifest_key_unreadable',
  'process_down',
  'process_silent',
  'process_unsteady',
  'receipt_keys_unreadable',
  'record_missing',
  'report_file_damaged',
  'reports_disk_low',
  'role_closed',
  'schedule_unreadable',
  'sealed_columns_missing',
  'second_service',
  'service_ended',
  'session_key_unreadable',
  'starting',
  'stopping',
  'stream_disk_low',
  'stream_fault',
  'stream_full',
  'stream_mended',
  'stream_missing',
  'stream_taken',
  'stream_unclaimed',
  'stream_unreadable',
  'stream_unsafe',
  'supervisor_silent',
  'table_unnamed',
  'users_key_gone',
  'users_unreadable',
  'webhook_unreadable',
] as const;

export type ProblemCode = (typeof problemCodes)[number];

/**
 * Something that is wrong, in one sentence, and the operator's next step in another: what `/readyz`, the log and
 * `tributary status` show. A notice has the same shape and makes the service no less ready.
 */
export interface Problem {
  readonly code: ProblemCode;
  /** What it is about, where one code may hold of several things at once: a process, a file, a time. */
  readonly subject?: string;
  /** What is wrong; may carry figures that change from one look to the next. */
  readonly what: string;
  readonly todo: string;
  /** When it was first found, ISO 8601; absent where nobody watches, as in a stage that only knows what holds now. */
  readonly since?: string;
}

/** Says whether a value is a code of the list. */
export function isProblemCode(value: unknown): value is ProblemCode {
  return problemCodes.some((code) => code === value);
}

/** The text by which a problem is known again: its code, and its subject where it has one. */
export function problemKey({ code, subject }: Problem): string {
  return subject === undefined ? code : `${code} ${subject}`;
}

/** Says whether two values are the same problem, whatever figures their sentences carry. */
export function isSameProblem(one: Problem, other: Problem): boolean {
  return problemKey(one) === problemKey(other);
}
