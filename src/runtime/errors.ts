/**
 * Operating errors: conditions such as a full disk, a held lock or an unreachable broker. Bad data is a value with a
 * reason; programmer errors assert. `retryable`: the same call may succeed later. `lasting`: loops wait without a
 * limit.
 */
const table = {
  config_invalid: { retryable: false },
  usage: { retryable: false },
  not_found: { retryable: false },
  conflict: { retryable: false },
  locked: { retryable: true },
  /** A lease was not renewed in time, or another process has it. */
  lease_lost: { retryable: true },
  /** The path of a folder in use leads to another folder, or to none. */
  folder_lost: { retryable: true },
  file_damaged: { retryable: false },
  /** An entry or checkpoint of the lake's log is damaged or contradicts others. */
  log_damaged: { retryable: false },
  rewrite_damaged: { retryable: false },
  /** Apps and users, or the key of their secrets. */
  access_damaged: { retryable: false },
  /** The record of an export request, or of the highest id. */
  report_damaged: { retryable: false },
  link_keys_damaged: { retryable: false },
  receipt_invalid: { retryable: false },
  manifest_invalid: { retryable: false },
  backup_damaged: { retryable: false },
  geo_database_damaged: { retryable: false },
  /** Another record of the data folder: its format, the lake's id, a watched file. */
  record_damaged: { retryable: false },
  stream_gap: { retryable: false },
  /** The data folder or backup is of a newer version, or an unfinished restore. */
  data_format: { retryable: false },
  broker_away: { retryable: true, lasting: true },
  /** The broker denies a right, storage or JetStream. */
  broker_refused: { retryable: true, lasting: true },
  broker_unsafe: { retryable: false },
  broker_missing: { retryable: false },
  stream_full: { retryable: true },
  stream_shut: { retryable: true, lasting: true },
  stream_taken: { retryable: false },
  /** The service of a command does not respond, or the result of a request is unknown. */
  service_away: { retryable: true },
  service_refused: { retryable: false },
  publish_unknown: { retryable: true },
  overloaded: { retryable: true },
  commit_conflict: { retryable: true },
  fenced: { retryable: false },
  /** The compactor of another host works on the lake. */
  standby: { retryable: true, lasting: true },
  lake_protocol: { retryable: false },
  foreign_commit: { retryable: false, lasting: true },
  schema_change: { retryable: false },
  disk: { retryable: true, lasting: true },
  /** The object store gives no definite response; a write may still take effect. */
  store_away: { retryable: true, lasting: true },
  /** The object store denies a request. */
  store_refused: { retryable: true, lasting: true },
  /** The object store ignores conditions of writes, or reads are not consistent. */
  store_unsafe: { retryable: false },
  /** A smaller batch may succeed. */
  memory: { retryable: false, lasting: true },
  sql: { retryable: false },
  start_failed: { retryable: true },
  port_in_use: { retryable: false },
  stopping: { retryable: true },
} as const satisfies Record<string, { retryable: boolean; lasting?: true }>;

export type ErrorCode = keyof typeof table;

/** Reports whether stored data is damaged, so that a retry does not help. */
export function isDamage(error: unknown): error is AppError {
  return error instanceof AppError && error.code.endsWith('_damaged');
}

export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(table, value);
}

interface AppErrorOptions {
  readonly cause?: unknown;
  readonly retryable?: boolean;
  /** The operator's next step as one imperative sentence. */
  readonly hint?: string;
}

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

export function isAppError(error: unknown, code?: ErrorCode): error is AppError {
  return error instanceof AppError && (code === undefined || error.code === code);
}

/** Reports whether an error is a Node system error with one of the codes. */
export function isSystemError(error: unknown, ...codes: string[]): error is NodeJS.ErrnoException {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code));
}

/** Awaits work on a file or folder; returns `otherwise` if it is missing, or for other system error codes. */
export async function unlessMissing<T, U>(work: Promise<T>, otherwise: U, ...codes: string[]): Promise<T | U> {
  try {
    return await work;
  } catch (error) {
    if (isSystemError(error, 'ENOENT', ...codes)) return otherwise;
    throw error;
  }
}

export function isDiskFull(error: unknown): error is NodeJS.ErrnoException {
  return isSystemError(error, 'ENOSPC', 'EDQUOT');
}

/** Reports whether a store did not respond or refused a request, so that nothing is known about its objects. */
export function isStoreError(error: unknown): boolean {
  return isAppError(error, 'store_away') || isAppError(error, 'store_refused');
}

/** Reports whether the same call may succeed later. */
export function isTransient(error: unknown): boolean {
  return isDiskFull(error) || (error instanceof AppError && error.retryable);
}

/** Reports whether a loop should wait for the condition to pass, without a limit. */
export function isRetriedForever(error: unknown): boolean {
  return isDiskFull(error) || (error instanceof AppError && 'lasting' in table[error.code]);
}

/** Renders any thrown value as one line: message, cause if it adds something, and hint. */
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
