import path from 'node:path';
import { userInfo } from 'node:os';
import process from 'node:process';
import type { AuditAction, AuditOutcome } from '../audit/audit-entry.ts';
import { openAuditLog } from '../audit/audit-log.ts';
import { isAppError } from '../runtime/errors.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { Clock } from '../runtime/clock.ts';
import { createLogger } from '../runtime/logger.ts';

/** Words, options and members of the result, of which a subject names some. */
type Names = Readonly<Record<string, unknown>>;

/** The parts of a command's context that are used here. */
interface AuditContext {
  readonly config: { readonly auditDays: number };
  readonly paths: { readonly audit: string };
  readonly clock: Clock;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly printMessage: (line: string) => void;
}

/**
 * Action, and the name of its object, without personal data. Undefined: the call changes nothing, and is not recorded.
 * A `long` action takes so long that its start is recorded too.
 */
type Audited = readonly [action: AuditAction, subject: (names: Names) => string | undefined, duration?: 'long'];

const show = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : 'unknown';

const of =
  (kind: string, word = 'ID') =>
  (names: Names): string =>
    `${kind} ${show(names[word])}`;

const ofAccount =
  (kind: string, word = 'ID') =>
  (names: Names) =>
    `${kind} ${show(names[word])}, account ${show(names['account'])}`;
const filesOf = ({ FILE: files }: Names): string =>
  [files]
    .flat()
    .map((file) => path.basename(String(file)))
    .join(', ');

/** Describes an erasure by what it applies to: ids of erased persons must not stay in the audit log. */
function describeErasure({ user, device, file, app, account, dryRun }: Names): string | undefined {
  const parts = Object.entries({ user, device, file }).flatMap(([name, given]) => (given === undefined ? [] : [name]));
  const places = [
    ...(app === undefined ? [] : [`app ${show(app)}`]),
    ...(account === undefined ? [] : [`account ${show(account)}`]),
  ];
  return dryRun === true ? undefined : [...parts, ...places].join(', ');
}

/** Describes an export of persons by their number, for the same reason. */
function describePersons({ ID: ids, idType, app, account }: Names): string {
  const places = Object.entries({ app, account }).map(([name, id]) =>
    id === undefined ? '' : `, ${name} ${show(id)}`,
  );
  const count = [ids].flat().length;
  return `${count} ${count === 1 ? 'id' : 'ids'} of a ${show(idType)}${places.join('')}`;
}

/** Describes the limit of an app: rows may be removed by it. */
function describeKeep({ ID: id, kind, days, forever }: Names): string {
  const limit = days === undefined ? (forever === true ? 'forever' : 'no own limit') : `${show(days)} days`;
  return [`app ${show(id)}`, ...(kind === undefined ? [] : [show(kind)]), limit].join(', ');
}

/** The commands that the audit log has, by their words. */
export const auditedCommands: Readonly<Record<string, Audited>> = {
  init: ['init', () => 'first app and user'],
  'app add': ['app_add', of('app')],
  'app set': ['app_set', of('app')],
  'app keep': ['app_keep', describeKeep],
  'app token add': ['app_token_add', of('app')],
  'app token revoke': [
    'app_token_revoke',
    (names) => `app ${show(names['ID'])} token ${show(names['PREFIX']).slice(0, 8)}`,
  ],
  'app remove': ['app_remove', of('app')],
  'app restore': ['app_restore', of('app')],
  'user add': ['user_add', (names) => `user ${show(names['idUser'] ?? names['NAME'])}`],
  'user set': ['user_set', of('user')],
  'user remove': ['user_remove', of('user')],
  'user rotate-secret': ['user_rotate_secret', of('user')],
  'user password': ['user_password', of('user')],
  'key rotate links': ['key_rotate', () => 'links'],
  'key rotate receipts': ['key_rotate', () => 'receipts'],
  'key rotate sessions': ['key_rotate', () => 'sessions'],
  'key rotate operator': ['key_rotate', () => 'operator'],
  erase: ['erase', describeErasure, 'long'],
  'person export': ['person_export', describePersons, 'long'],
  'lake enrich': ['lake_enrich', () => 'countries and devices', 'long'],
  'lake repair': ['lake_repair', ({ acceptLoss }) => (acceptLoss === true ? 'accepted loss' : 'log'), 'long'],
  'lake expire': ['lake_expire', ({ dryRun }) => (dryRun === true ? undefined : 'age limits'), 'long'],
  'load titles': ['load', (names) => `titles: ${filesOf(names)}`],
  'load undo': ['load_undo', of('load')],
  'segment add': ['segment_add', ofAccount('segment')],
  'segment remove': ['segment_remove', ofAccount('segment')],
  'schedule add': ['schedule_add', of('schedule', 'idSchedule')],
  'schedule remove': ['schedule_remove', ofAccount('schedule')],
  'schedule pause': ['schedule_pause', ofAccount('schedule')],
  'schedule resume': ['schedule_resume', ofAccount('schedule')],
  'schedule run': ['schedule_run', ofAccount('schedule')],
  'webhook add': ['webhook_add', ofAccount('webhook', 'idWebhook')],
  'webhook remove': ['webhook_remove', ofAccount('webhook')],
  'webhook rotate-secret': ['webhook_rotate_secret', ofAccount('webhook')],
  'destination add': ['destination_add', ofAccount('destination', 'idDestination')],
  'destination remove': ['destination_remove', ofAccount('destination')],
  'destination set-secret': ['destination_set_secret', ofAccount('destination')],
  'failed export': ['failed_export', () => 'failed events'],
  'failed drop': ['failed_drop', () => 'failed events'],
  'failed replay': ['failed_replay', () => 'failed events'],
  backup: ['backup', () => 'data folder', 'long'],
  restore: ['restore', () => 'data folder'],
};

function findAudited(command: string): Audited | undefined {
  const [group, verb = ''] = command.split(' ');
  const isDataset = group === 'load' && verb !== 'list' && auditedCommands[command] === undefined;
  if (isDataset) return ['load', (names) => `${verb}: ${filesOf(names)}`];
  return Object.hasOwn(auditedCommands, command) ? auditedCommands[command] : undefined;
}

/** Returns the account of the system, and that of the person who became it by sudo. */
function findSystemUser({ SUDO_USER: before }: AuditContext['environment']): string {
  let name: string;
  try {
    name = userInfo().username;
  } catch {
    // A container may run as a number without a name.
    name = `uid ${process.getuid?.()}`;
  }
  return before === undefined || before === '' ? name : `${before} as ${name}`;
}

/**
 * Runs a command on a data folder, and records it with its result if it is one of the audit log. An audit log that
 * cannot be written is a message after a command that has done its work. Errors: those of the command.
 */
export async function runAudited(
  command: string,
  given: object,
  context: AuditContext,
  run: () => Promise<number | object | void>,
): Promise<number | object | void> {
  const audited = findAudited(command);
  const words = membersOf(given);
  if (audited === undefined) return await run();
  const [action, subject, duration] = audited;
  if (subject(words) === undefined) return await run();
  const { config, paths, clock, environment, printMessage } = context;
  const logger = createLogger('silent');
  const audit = openAuditLog({ folder: paths.audit, keepDays: config.auditDays }, { clock, logger });
  const systemUser = findSystemUser(environment);
  const record = (outcome: AuditOutcome, result: unknown, detail?: string): Promise<void> =>
    audit.record(action, outcome, { systemUser, subject: subject({ ...words, ...membersOf(result) }), detail });
  try {
    if (duration === 'long') await record('started', undefined);
    const result = await run();
    await record(typeof result === 'number' && result !== 0 ? 'failed' : 'ok', result);
    for (const { message, action: todo } of audit.problems()) printMessage(`tributary: ${message}. ${todo}`);
    return result;
  } catch (error) {
    // Wrong words change nothing.
    if (!isAppError(error, 'usage')) await record('failed', undefined, isAppError(error) ? error.code : undefined);
    throw error;
  } finally {
    await audit.stop();
  }
}
