/**
 * The one table of operating errors. An operating error is something the world did (a full disk, a lock held, a broker
 * away); bad data is a value with a reason, and programmer errors assert and crash. `retryable`: the same call may
 * succeed later. `lasting`: it is waited for however long it takes, since a new process would meet the same.
 */
const table = {
  config_invalid: { retryable: false },
  usage: { retryable: false },
  not_found: { retryable: false },
  conflict: { retryable: false },
  locked: { retryable: true },
  /** Another folder, or none, is at the path of one that this process works in. */
  folder_lost: { retryable: true },
  /** What is damaged, or gone: a data file or a report file, by the checksum that is known of it. */
  file_damaged: { retryable: false },
  /** The lake's log: an entry, a checkpoint, or what they say of each other. */
  log_damaged: { retryable: false },
  /** The record of a change in staging. */
  rewrite_damaged: { retryable: false },
  /** Apps and users, or the key of their secrets. */
  access_damaged: { retryable: false },
  /** The record of an export request, or of the highest id. */
  report_damaged: { retryable: false },
  /** The keys that links are signed with. */
  link_keys_damaged: { retryable: false },
  /** A receipt of an import is not as it was signed. */
  receipt_invalid: { retryable: false },
  /** The manifest of an export is not as it was signed. */
  manifest_invalid: { retryable: false },
  backup_damaged: { retryable: false },
  /** The database of addresses that places come from: the package's own, or an operator's. */
  geo_database_damaged: { retryable: false },
  /** Another record of the data folder: its format, the lake's id, a file that is watched. */
  record_damaged: { retryable: false },
  /** Messages are missing between two of the stream. */
  stream_gap: { retryable: false },
  /** The data folder, or a backup, is of a newer version, or an unfinished restore. */
  data_format: { retryable: false },
  broker_away: { retryable: true, lasting: true },
  /** The broker is there and does not let the service do it: a right, storage or JetStream is missing. */
  broker_refused: { retryable: true, lasting: true },
  broker_unsafe: { retryable: false },
  broker_missing: { retryable: false },
  stream_full: { retryable: true },
  stream_shut: { retryable: true, lasting: true },
  stream_taken: { retryable: false },
  /** A running service that a command works against gives no answer, or none that says what became of a request. */
  service_away: { retryable: true },
  /** It has refused what a command asked of it. */
  service_refused: { retryable: false },
  publish_unknown: { retryable: true },
  overloaded: { retryable: true },
  commit_conflict: { retryable: true },
  fenced: { retryable: false },
  lake_protocol: { retryable: false },
  foreign_commit: { retryable: false, lasting: true },
  schema_change: { retryable: false },
  disk: { retryable: true, lasting: true },
  /** Met by less at once. */
  memory: { retryable: false, lasting: true },
  sql: { retryable: false },
  start_failed: { retryable: true },
  /** The port that a process was to listen on is another program's. */
  port_in_use: { retryable: false },
  stopping: { retryable: true },
} as const satisfies Record<string, { retryable: boolean; lasting?: true }>;

export type ErrorCode = keyof typeof table;

/** Says whether an error means that something at rest is not what was written; trying again does not help. */
export function isDamage(error: unknown): error is AppError {
  return error instanceof AppError && error.code.endsWith('_damaged');
}

/** Says whether a value is a code of the table. */
export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(table, value);
}

interface AppErrorOptions {
  readonly cause?: unknown;
  /** Overrides the table's answer to "may the same call succeed later?". */
  readonly retryable?: boolean;
  /** What the operator should do next, as one imperative sentence. */
  readonly hint?: string;
}

/** An operating error with a code from the table, and a hint for the person who has to act on it. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, options: AppErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'AppError';
    this.code = code;
    this.retryable = options.retryable ?? table[code].retryable;
    this.hint = options.hint;
  }
}

/** Says whether an error is an AppError, of the given code when one is named. */
export function isAppError(error: unknown, code?: ErrorCode): error is AppError {
  return error instanceof AppError && (code === undefined || error.code === code);
}

/** Says whether an error is a Node system error of one of the given codes (`ENOENT`, `EEXIST`, ...). */
export function isSystemError(error: unknown, ...codes: string[]): error is NodeJS.ErrnoException {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code));
}

/** Says whether an error is that of a full disk or an exhausted quota. */
export function isDiskFull(error: unknown): boolean {
  return isSystemError(error, 'ENOSPC', 'EDQUOT');
}

/** Says whether the same call may succeed later. */
export function isTransient(error: unknown): boolean {
  return isDiskFull(error) || (error instanceof AppError && error.retryable);
}

/** Says whether a loop waits for the cause to go, however long it takes: a new process would meet the same. */
export function isLasting(error: unknown): boolean {
  return isDiskFull(error) || (error instanceof AppError && 'lasting' in table[error.code]);
}

/** Renders any thrown value as one line: the message, its cause where that adds something, and the hint. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause =
    error.cause instanceof Error && !error.message.includes(error.cause.message) ? ` (${error.cause.message})` : '';
  const hint = error instanceof AppError && error.hint !== undefined ? ` ${error.hint}` : '';
  return `${error.message}${cause}${error.message.endsWith('.') || hint === '' ? '' : '.'}${hint}`.replaceAll(
    '\n',
    ' ',
  );
}
