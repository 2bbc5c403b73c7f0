/**
 * Conditions: problems as values that travel from a stage to the operator, and bounded logs. Nothing is stored here.
 */

/**
 * The closed list of problem and warning codes, which operators' rules may match; `message` and `action` are for people and
 * may change. docs/operating.md has their urgency.
 */
export const problemCodes = [
  'access_missing',
  'access_unreadable',
  'broker_ack_timeout',
  'broker_clock_ahead',
  'broker_overloaded',
  'broker_permission_denied',
  'broker_store_replaced',
  'broker_store_write_failed',
  'broker_unreachable',
  'broker_unresponsive',
  'clock_behind_lake',
  'data_folder_replaced',
  'data_folder_shared',
  'dedupe_keys_lost',
  'descriptors_exhausted',
  'enrichment_failing',
  'erased_ids_damaged',
  'events_failed',
  'export_met_damage',
  'export_request_unreadable',
  'exports_unreadable',
  'flush_failing',
  'foreign_commit',
  'geo_database_unreadable',
  'lake_disk_low',
  'lake_unreadable',
  'lake_unwritable',
  'link_keys_renewed',
  'link_keys_unreadable',
  'maintenance_failing',
  'manifest_key_unreadable',
  'process_crash_looping',
  'process_down',
  'process_unresponsive',
  'receipt_keys_unreadable',
  'record_missing',
  'report_file_damaged',
  'reports_disk_low',
  'role_closed',
  'schedule_unreadable',
  'seal_failed',
  'sealed_columns_missing',
  'secrets_key_missing',
  'service_crashed',
  'session_key_unreadable',
  'starting',
  'stopping',
  'stream_claim_missing',
  'stream_disk_low',
  'stream_fault',
  'stream_full',
  'stream_missing',
  'stream_repaired',
  'stream_taken',
  'stream_unclaimed',
  'stream_unreadable',
  'stream_unsafe',
  'supervisor_unresponsive',
  'table_unnamed',
  'user_agent_parser_failed',
  'users_unreadable',
  'webhook_unreadable',
] as const;

export type ProblemCode = (typeof problemCodes)[number];

/**
 * A condition in one sentence and the operator's next step in another, as `/readyz`, the log and `tributary status`
 * show it. A warning has the same shape and does not affect readiness.
 */
export interface Problem {
  readonly code: ProblemCode;
  /** The process, file or time, if one code can apply to several at once. */
  readonly subject?: string;
  /** The condition; may contain figures that change. */
  readonly message: string;
  readonly action: string;
  /** When it was first observed, ISO 8601; absent in reports of a stage. */
  readonly since?: string;
}

export function isProblemCode(value: unknown): value is ProblemCode {
  return problemCodes.some((code) => code === value);
}

/** Returns the identity of a problem: its code and subject. */
export function problemKey({ code, subject }: Problem): string {
  return subject === undefined ? code : `${code} ${subject}`;
}

/** Reports whether two values are the same problem, whose figures may differ. */
export function isSameProblem(one: Problem, other: Problem): boolean {
  return problemKey(one) === problemKey(other);
}
