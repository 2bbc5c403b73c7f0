import { isCount, isText, optional, shapeOf } from '../runtime/store/shape.ts';

/** Actions of the audit log: of users, and of commands by their words. */
export const auditActions = [
  'sign_in',
  'sign_out',
  'api_call',
  'export_create',
  'export_cancel',
  'download',
  'view',
  'app_add',
  'app_set',
  'app_keep',
  'app_remove',
  'app_restore',
  'app_token_add',
  'app_token_revoke',
  'user_add',
  'user_set',
  'user_remove',
  'user_rotate_secret',
  'user_password',
  'key_rotate',
  'init',
  'erase',
  'person_export',
  'lake_expire',
  'lake_enrich',
  'lake_repair',
  'load',
  'load_undo',
  'segment_add',
  'segment_remove',
  'schedule_add',
  'schedule_remove',
  'schedule_pause',
  'schedule_resume',
  'schedule_run',
  'webhook_add',
  'webhook_remove',
  'webhook_rotate_secret',
  'destination_add',
  'destination_remove',
  'destination_set_secret',
  'failed_export',
  'failed_drop',
  'failed_replay',
  'backup',
  'restore',
] as const;
export type AuditAction = (typeof auditActions)[number];

/** `started` precedes the result of a long action; `refused` is a call without permission. */
export const auditOutcomes = ['ok', 'started', 'failed', 'refused'] as const;
export type AuditOutcome = (typeof auditOutcomes)[number];

/** Who did something to what. Has no secret and no token; `subject` and `detail` have ids and names only. */
export interface AuditDetails {
  /** The user who did it, or whose id was used; absent for a command. */
  readonly idUser?: string | undefined;
  readonly name?: string | undefined;
  /** The account of the system that ran a command. */
  readonly systemUser?: string | undefined;
  /** Address of the client; absent for a command, and where all clients share the address of a proxy. */
  readonly address?: string | undefined;
  /** Such as `app 7` or `export 12`. */
  readonly subject?: string | undefined;
  readonly detail?: string | undefined;
}

export interface AuditEntry extends AuditDetails {
  readonly action: AuditAction;
  readonly outcome: AuditOutcome;
  /** 16 hex digits; an entry that was written twice has one id. */
  readonly id: string;
  /** ISO 8601, by the clock of the service. */
  readonly time: string;
  /** Number of equal actions since the entry before; 1 if absent. */
  readonly count?: number | undefined;
  /** Name of the host, if several share the entries. */
  readonly host?: string | undefined;
}

/** Members of an entry, in the order of columns. */
export const auditColumns = [
  'time',
  'action',
  'outcome',
  'idUser',
  'name',
  'systemUser',
  'address',
  'subject',
  'detail',
  'count',
  'host',
  'id',
] as const satisfies readonly (keyof AuditEntry)[];

const maxTextLength = 200;

/** A later version may have other actions and outcomes, which are shown too. */
const isAuditEntry = shapeOf<AuditEntry>({
  id: isText,
  time: (value) => isText(value) && Number.isFinite(Date.parse(value)),
  action: isText,
  outcome: isText,
  idUser: optional(isText),
  name: optional(isText),
  systemUser: optional(isText),
  address: optional(isText),
  subject: optional(isText),
  detail: optional(isText),
  count: optional(isCount),
  host: optional(isText),
});

/** Renders an entry as one line, with long texts cut. */
export function renderAuditEntry(entry: AuditEntry): string {
  const members = auditColumns.flatMap((column) => {
    const value = entry[column];
    if (value === undefined) return [];
    return [[column, typeof value === 'string' ? value.slice(0, maxTextLength).toWellFormed() : value] as const];
  });
  return JSON.stringify(Object.fromEntries(members));
}

/** Parses a line; undefined if it is truncated or damaged. */
export function parseAuditEntry(line: string): AuditEntry | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isAuditEntry(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Renders an entry as a row of CSV (RFC 4180). A text that a spreadsheet takes for a formula begins with `'`. */
export function renderAuditRow(entry: AuditEntry): string {
  return auditColumns
    .map((column) => {
      const text = String(entry[column] ?? '');
      const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
      return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    })
    .join(',');
}
