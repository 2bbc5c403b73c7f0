import { defined } from '../../runtime/files/checksummed-json.ts';
import type { AccessPaths } from '../../access/access-file.ts';
import { noAccount, type User } from '../../access/access.ts';
import {
  addApp,
  addAppToken,
  listApps,
  removeApp,
  restoreApp,
  revokeAppToken,
  setApp,
  type AppSettings,
} from '../../access/apps.ts';
import {
  addUser,
  listUsers,
  removeUser,
  rotateUserSecret,
  setUser,
  type NewUser,
  type UserSettings,
} from '../../access/users.ts';
import type { AuditEntry } from '../../audit/audit-entry.ts';
import { readAuditDays } from '../../audit/audit-log.ts';
import { platforms, type Platform } from '../../datasets/field-schema.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import type { Logger } from '../../runtime/logger.ts';
import { withFormerStatus } from '../../runtime/former-names.ts';
import type { ProcessState } from '../../runtime/processes/supervisor.ts';
import type { Arguments } from '../api/arguments.ts';
import { badRequest, type ExportApiError } from '../api/envelope.ts';
import { parseId, parseLimit, single, type AddMethod } from '../api/methods-routes.ts';
import {
  createOperatorMethods,
  parseIdOrNone,
  parseLabel,
  parsePage,
  takePage,
  type OperatorMethods,
} from './operator-methods.ts';

const maxTitleLength = 255;
const appExpected = badRequest('Argument idApp is expected: a whole number from 1');
const titleInvalid = badRequest(`Argument title must be a text of at most ${maxTitleLength} characters`);

const isPlatform = (text: string | undefined): text is Platform => platforms.some((platform) => platform === text);

function parseApp(callArguments: Arguments) {
  const idApp = parseId(single(callArguments, 'idApp'));
  if (idApp === undefined) return appExpected;
  const platform = single(callArguments, 'platform');
  if (!isPlatform(platform)) return badRequest(`Argument platform is expected: one of ${platforms.join(', ')}`);
  const idAccount = parseId(single(callArguments, 'idAccount') ?? '1');
  if (idAccount === undefined) return badRequest('Argument idAccount must be a whole number from 1');
  const idProject = parseId(single(callArguments, 'idProject'));
  if (callArguments.has('idProject') && idProject === undefined)
    return badRequest('Argument idProject must be a whole number from 1');
  const title = parseLabel(single(callArguments, 'title'), maxTitleLength);
  if (callArguments.has('title') && title === undefined) return titleInvalid;
  return { idApp, platform, idAccount, ...defined({ idProject, title, sdkKey: single(callArguments, 'sdkKey') }) };
}

function parseAppSettings(callArguments: Arguments): AppSettings | ExportApiError {
  const title = parseLabel(single(callArguments, 'title'), maxTitleLength);
  if (callArguments.has('title') && title === undefined) return titleInvalid;
  const idProject = parseIdOrNone(single(callArguments, 'idProject'));
  if (callArguments.has('idProject') && idProject === undefined)
    return badRequest('Argument idProject must be a whole number from 1, or none');
  if (title === undefined && idProject === undefined) return badRequest('Argument title or idProject is expected');
  return defined({ title, idProject });
}

/** Creates what adds the changes of one app or user, whose id is the first argument. */
const changesOf =
  (change: OperatorMethods['post'], kind: 'app' | 'user', expected: ExportApiError) =>
  (
    verb: string,
    others: readonly string[],
    work: (id: number, callArguments: Arguments, operator: User) => Promise<object>,
  ): void => {
    const idName = kind === 'app' ? 'idApp' : 'idUser';
    const url = `/api/operations/v1/${kind}/${verb}.json`;
    change(url, `operations_${kind}_${verb}`, [idName, ...others], async (given, operator) => {
      const id = parseId(single(given, idName));
      return id === undefined ? expected : await work(id, given, operator);
    });
  };

function addAppChanges({ get, post }: OperatorMethods, paths: AccessPaths, clock: Clock): void {
  get('/api/operations/v1/apps.json', 'operations_apps', ['search', 'offset', 'limit', 'removed'], async (given) => {
    const page = parsePage(given);
    if ('code' in page) return page;
    const apps = await listApps(paths, single(given, 'removed') === '1');
    const { items, total } = takePage(apps, page, ({ idApp, title, idAccount }) => [idApp, title, idAccount]);
    return { apps: items, total };
  });

  const known = ['idApp', 'platform', 'title', 'idAccount', 'idProject', 'sdkKey'];
  post('/api/operations/v1/app/add.json', 'operations_app_add', known, async (given) => {
    const app = parseApp(given);
    return 'code' in app ? app : await addApp(paths, app, clock.nowMs());
  });
  const ofApp = changesOf(post, 'app', appExpected);
  ofApp('set', ['title', 'idProject'], async (idApp, given) => {
    const settings = parseAppSettings(given);
    return 'code' in settings ? settings : await setApp(paths, idApp, settings);
  });
  ofApp('token', [], (idApp) => addAppToken(paths, idApp, clock.nowMs()));
  ofApp('revoke', ['prefix'], (idApp, given) => revokeAppToken(paths, idApp, single(given, 'prefix') ?? ''));
  ofApp('remove', [], (idApp) => removeApp(paths, idApp, clock.nowMs()));
  ofApp('restore', [], (idApp) => restoreApp(paths, idApp, clock.nowMs()));
}

const maxNameLength = 100;
const userExpected = badRequest('Argument idUser is expected: the id of a user');
const ownSelf = badRequest("An operator cannot remove itself: ask another operator, or run 'tributary user remove'");
const filesInvalid = badRequest('Argument files must be auto or gzip');

const isPacking = (text: string): text is 'auto' | 'gzip' => text === 'auto' || text === 'gzip';

function parseSwitch(given: Arguments, name: string): boolean | undefined {
  const text = single(given, name);
  return text === '1' || text === '0' ? text === '1' : undefined;
}

function parseUser(callArguments: Arguments): NewUser | ExportApiError {
  const name = parseLabel(single(callArguments, 'name'), maxNameLength);
  if (name === undefined) return badRequest(`Argument name is expected: a text of at most ${maxNameLength} characters`);
  const isOperator = callArguments.has('operator') ? parseSwitch(callArguments, 'operator') : false;
  const mayExport = callArguments.has('canExport') ? parseSwitch(callArguments, 'canExport') : true;
  if (isOperator === undefined || mayExport === undefined)
    return badRequest('Arguments operator and canExport must be 1 or 0');
  const hasAccount = callArguments.has('idAccount') || !isOperator;
  const idAccount = hasAccount ? parseId(single(callArguments, 'idAccount')) : noAccount;
  if (idAccount === undefined) return badRequest('Argument idAccount is expected: a whole number from 1');
  const maxExports = parseId(single(callArguments, 'maxExports'));
  if (callArguments.has('maxExports') && maxExports === undefined)
    return badRequest('Argument maxExports must be a whole number from 1');
  const files = single(callArguments, 'files') ?? 'auto';
  if (!isPacking(files)) return filesInvalid;
  return {
    name,
    idAccount,
    canExport: hasAccount && mayExport,
    ...defined({
      operator: isOperator ? (true as const) : undefined,
      maxExports,
      files: files === 'gzip' ? files : undefined,
    }),
  };
}

function parseUserSettings(callArguments: Arguments): UserSettings | ExportApiError {
  const canExport = parseSwitch(callArguments, 'canExport');
  if (callArguments.has('canExport') && canExport === undefined) return badRequest('Argument canExport must be 1 or 0');
  const maxExports = parseIdOrNone(single(callArguments, 'maxExports'));
  if (callArguments.has('maxExports') && maxExports === undefined)
    return badRequest('Argument maxExports must be a whole number from 1, or none');
  const files = single(callArguments, 'files');
  if (files !== undefined && !isPacking(files)) return filesInvalid;
  if (canExport === undefined && maxExports === undefined && files === undefined)
    return badRequest('Argument canExport, maxExports or files is expected');
  return defined({ canExport, maxExports, files });
}

function addUserChanges({ get, post }: OperatorMethods, paths: AccessPaths): void {
  get('/api/operations/v1/users.json', 'operations_users', ['search', 'offset', 'limit'], async (given) => {
    const page = parsePage(given);
    if ('code' in page) return page;
    const users = await listUsers(paths);
    const { items, total } = takePage(users, page, ({ idUser, name, idAccount }) => [idUser, name, idAccount]);
    return { users: items, total };
  });

  const known = ['name', 'idAccount', 'operator', 'canExport', 'maxExports', 'files'];
  post('/api/operations/v1/user/add.json', 'operations_user_add', known, async (given) => {
    const user = parseUser(given);
    return 'code' in user ? user : await addUser(paths, user);
  });
  const ofUser = changesOf(post, 'user', userExpected);
  ofUser('set', ['canExport', 'maxExports', 'files'], async (idUser, given) => {
    const settings = parseUserSettings(given);
    return 'code' in settings ? settings : await setUser(paths, idUser, settings);
  });
  ofUser('secret', [], (idUser) => rotateUserSecret(paths, idUser));
  ofUser('remove', [], async (idUser, _given, operator) =>
    String(idUser) === operator.idUser ? ownSelf : await removeUser(paths, idUser),
  );
}

/**
 * Operations: operators read the status of the service and change apps and users.
 *
 * In: calls of operators by the API (api/methods-routes.ts). Out: the status that composition reads, lists of apps and
 * users, changes by the functions of the commands.
 * Invariant: other users get a 403; a token or a secret is shown once and stored hashed or encrypted; each change is
 * logged with its operator.
 * Crash: a change is made or not (access/access-file.ts); one whose response was lost shows in the lists.
 */
export interface OperationsDependencies {
  readonly paths: AccessPaths & { readonly audit: string };
  readonly readStatus: () => Promise<ServiceStatus>;
}

/** Counts of one ingest process since its start. */
export interface IngestCounts {
  readonly process: string;
  readonly pid: number | undefined;
  readonly events: number;
  /** Rejected requests by reason; zero counts are absent. */
  readonly refused: Readonly<Record<string, number>>;
}

/** State of the lake; members of a process that is down are absent. */
export interface LakeStatus {
  readonly version?: number;
  readonly files?: number;
  readonly streamed?: number;
  readonly stored?: number;
  readonly failed?: number;
  readonly repeats?: number;
  readonly erased?: number;
  /** Time up to which the lake is complete, ISO 8601. */
  readonly watermark?: string;
}

export interface StreamStatus {
  readonly messages: number;
  readonly bytes: number;
  /** Messages that the lake lacks; absent if its position is unknown. */
  readonly lagMessages?: number;
}

/** A disk, and the folders of the service on it. */
interface DiskStatus {
  readonly holds: readonly string[];
  readonly freeBytes: number;
  readonly totalBytes: number;
}

export interface ServiceStatus {
  /** ISO 8601, by the service's clock. */
  readonly at: string;
  readonly ready: boolean;
  readonly startedAt: string | undefined;
  readonly version: string;
  readonly processes: readonly ProcessState[];
  readonly ingest: readonly IngestCounts[];
  readonly stream: StreamStatus | undefined;
  readonly lake: LakeStatus;
  readonly exports: { readonly running: number; readonly inProgress: number; readonly reports: number };
  /** Free space at which imports are rejected. */
  readonly diskReserveBytes: number;
  readonly disks: readonly DiskStatus[];
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

const auditLimits = { fallback: 100, most: 1000 } as const;

/** Lists the newest entries of the audit log. */
async function listAudit(folder: string, limit: number) {
  const entries: AuditEntry[] = [];
  for await (const found of readAuditDays(folder)) {
    entries.push(...found.entries.slice(0, limit + 1 - entries.length));
    if (entries.length > limit) break;
  }
  return { entries: entries.slice(0, limit), hasMore: entries.length > limit };
}

/** Adds the methods of the operations API. */
export function addOperationsMethods(
  addMethod: AddMethod,
  { paths, readStatus }: OperationsDependencies,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
): void {
  const methods = createOperatorMethods(addMethod, logger.child({ stage: 'operations' }));
  methods.get('/api/operations/v1/status.json', 'operations_status', [], async () =>
    withFormerStatus(await readStatus()),
  );
  addAppChanges(methods, paths, clock);
  addUserChanges(methods, paths);
  methods.get('/api/operations/v1/audit.json', 'operations_audit', ['limit'], async (given) => {
    const limit = parseLimit(given, auditLimits.fallback, auditLimits.most);
    return typeof limit === 'number' ? await listAudit(paths.audit, limit) : limit;
  });
}
