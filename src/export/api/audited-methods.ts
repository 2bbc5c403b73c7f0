import type { AuditAction, AuditDetails } from '../../audit/audit-entry.ts';
import type { User } from '../../access/access.ts';
import { isKeyOf, membersOf } from '../../runtime/files/checksummed-json.ts';
import type { Arguments } from './arguments.ts';

/** Values that may name the object of a call: its arguments, and the members of its result. */
type Names = Readonly<Record<string, unknown>>;

const of =
  (kind: string, member: string) =>
  (names: Names): string =>
    `${kind} ${String(names[member])}`;

const app = of('app', 'idApp');
const user = of('user', 'idUser');
const schedule = of('schedule', 'idSchedule');
const webhook = of('webhook', 'idWebhook');
const destination = of('destination', 'idDestination');
const request = of('export', 'idRawExport');
const viewOf =
  (what: string) =>
  (names: Names): string =>
    `${names['idApp'] === undefined ? 'all apps' : app(names)}, ${what}`;

/** The methods whose calls the audit log has, with the object of a call. Results have secrets, which are not named. */
const auditedMethods = {
  create: ['export_create', request],
  cancel: ['export_cancel', request],
  preview: ['view', viewOf('preview')],
  app_live: ['view', viewOf('live')],
  app_refusals: ['view', viewOf('refusals')],
  schedule_create: ['schedule_add', schedule],
  schedule_delete: ['schedule_remove', schedule],
  schedule_pause: ['schedule_pause', schedule],
  schedule_resume: ['schedule_resume', schedule],
  schedule_run: ['schedule_run', schedule],
  webhook_create: ['webhook_add', webhook],
  webhook_delete: ['webhook_remove', webhook],
  webhook_rotate: ['webhook_rotate_secret', webhook],
  destination_create: ['destination_add', destination],
  destination_delete: ['destination_remove', destination],
  destination_secret: ['destination_set_secret', destination],
  operations_app_add: ['app_add', app],
  operations_app_set: ['app_set', app],
  operations_app_token: ['app_token_add', app],
  operations_app_revoke: ['app_token_revoke', (names) => `${app(names)} token ${String(names['revoked'])}`],
  operations_app_remove: ['app_remove', app],
  operations_app_restore: ['app_restore', app],
  operations_user_add: ['user_add', user],
  operations_user_set: ['user_set', user],
  operations_user_secret: ['user_rotate_secret', user],
  operations_user_remove: ['user_remove', user],
} as const satisfies Readonly<Record<string, readonly [AuditAction, (names: Names) => string]>>;

/** Arguments that describe an object further. Not the URL of a webhook, which may contain a secret. */
const detailNames = ['event', 'name', 'title'];
/** Limit of an argument with many values. */
const maxLength = 200;

/** Describes a successful call for the audit log; undefined for a method that is not audited. */
export function describeCall(
  method: string,
  { idUser, name }: User,
  given: Arguments,
  data: unknown,
): { readonly action: AuditAction; readonly details: AuditDetails } | undefined {
  if (!isKeyOf(auditedMethods, method)) return undefined;
  const [action, subjectOf] = auditedMethods[method];
  const callArguments = Object.fromEntries(
    [...given].map(([argument, values]) => [argument, values.join(', ').slice(0, maxLength)]),
  );
  const details = detailNames.flatMap((argument) =>
    callArguments[argument] === undefined ? [] : [`${argument} ${callArguments[argument]}`],
  );
  const detail = details.length === 0 ? undefined : details.join(', ');
  const subject = subjectOf({ ...callArguments, ...membersOf(data) });
  return { action, details: { idUser, name, subject, detail } };
}
