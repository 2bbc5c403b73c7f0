import { auditColumns } from '../../audit/audit-entry.ts';
import { platforms } from '../../datasets/field-schema.ts';
import type { OpenApiPart, Schema } from '../../runtime/http/openapi.ts';
import { describeFormerNames } from '../../runtime/former-names.ts';
import { choice, count, flag, listOf, moment, note, object, parameter, text } from '../../runtime/http/openapi.ts';
import { pageArguments } from '../api/account-openapi.ts';
import { operationsExamples } from '../api/openapi-examples.ts';
import { method, notFoundResponse } from '../api/openapi.ts';
import { members } from '../api/openapi-schemas.ts';

function describeStatus(): Schema {
  const problem = describeFormerNames(
    'problem',
    object({ code: text, message: text, action: text, 'subject?': text, 'since?': moment }),
  );
  const process = object({
    name: text,
    state: choice(['starting', 'running', 'waiting', 'stopped']),
    restarts: count,
    'pid?': count,
    'lastError?': text,
    'unsteady?': flag,
  });
  const refused = { type: 'object', additionalProperties: count };
  const lake = ['version', 'files', 'streamed', 'stored', 'failed', 'repeats', 'erased'];
  const status = object({
    at: moment,
    ready: flag,
    version: text,
    processes: listOf(process),
    ingest: listOf(
      object({ process: text, events: count, refused, 'pid?': count }),
      'Since the start of each process.',
    ),
    lake: object({ ...Object.fromEntries(lake.map((name) => [`${name}?`, count])), 'watermark?': moment }),
    exports: object({ running: count, inProgress: count, reports: count }),
    diskReserveBytes: count,
    disks: listOf(object({ holds: listOf(text), freeBytes: count, totalBytes: count })),
    problems: listOf(problem),
    warnings: listOf(problem),
    'startedAt?': moment,
    'stream?': object({ messages: count, bytes: count, 'lagMessages?': count }),
  });
  return describeFormerNames('status', status);
}

const token = object({ idApp: text, token: note(text, 'Token, shown once.') });
const secret = object({ idUser: text, secret: note(text, 'Secret, shown once.') });
const idApp = parameter('idApp', text, 'App of any account.');
const idUser = parameter('idUser', text, 'User of any account.');
const ofNobody = { 404: { ...notFoundResponse[404], description: 'The object does not exist or was removed.' } };

/** Describes a change. `others`: further responses. */
const change = (summary: string, given: readonly Schema[], data: Schema, others: Schema = ofNobody): Schema => ({
  post: method(summary, given, data, others),
});

function describeAppChanges(): Record<string, Schema> {
  const app = object({
    idApp: text,
    platform: choice(platforms),
    ...members(text, 'title', 'idAccount', 'sdkKey'),
    tokens: listOf(object({ prefix: text, createdAt: moment })),
    'idProject?': text,
    'removedAt?': moment,
  });
  const parameters = [
    idApp,
    parameter('platform', choice(platforms), 'Platform of the app.'),
    parameter('title?', text, 'Title of the app.'),
    parameter('idAccount?', text, 'Account of the app. Default: 1.'),
    parameter('idProject?', text, 'Project of the app, for the idProject filter of exports.'),
    parameter('sdkKey?', text, 'SDK key of the app, for the SDKKey filter of exports. Default: generated.'),
  ];
  const changed = [
    idApp,
    parameter('title?', text, 'Title of the app.'),
    parameter('idProject?', text, 'Project of the app, for the idProject filter of exports; none removes it.'),
  ];
  const prefix = parameter('prefix', text, 'First characters of the token, at least four.');
  const list = [...pageArguments, parameter('removed?', choice(['1']), '1: removed apps.')];
  const revoked = object({ idApp: text, revoked: text, tokens: listOf(text) });
  const removed = object({ idApp: text, removedAt: moment, revoked: listOf(text) });
  const base = '/api/operations/v1';
  return {
    [`${base}/apps.json`]: {
      get: method('List the apps of all accounts.', list, object({ apps: listOf(app), total: count })),
    },
    [`${base}/app/add.json`]: change('Create an app with its first token.', parameters, token, {}),
    [`${base}/app/set.json`]: change('Update the title or the project of an app.', changed, app),
    [`${base}/app/token.json`]: change('Create another token of an app.', [idApp], token),
    [`${base}/app/revoke.json`]: change('Revoke a token.', [idApp, prefix], revoked),
    [`${base}/app/remove.json`]: change('Remove an app with its tokens; its rows stay.', [idApp], removed),
    [`${base}/app/restore.json`]: change('Restore a removed app.', [idApp], token),
  };
}

function describeUserChanges(): Record<string, Schema> {
  const packing = choice(['auto', 'gzip']);
  const toggle = choice(['0', '1']);
  const user = object({
    idUser: text,
    name: text,
    canExport: flag,
    files: packing,
    'idAccount?': text,
    'maxExports?': count,
    'operator?': flag,
  });
  const parameters = [
    parameter('name', text, 'Name of the user, unique in the account.'),
    parameter('idAccount?', text, 'Account of the user; optional for an operator.'),
    parameter('operator?', toggle, 'Whether the user is an operator. Default: 0.'),
    parameter('canExport?', toggle, 'Whether the user may create exports. Default: 1.'),
    parameter('maxExports?', text, 'Maximum simultaneous requests of the user, within the limit of the account.'),
    parameter('files?', packing, 'gzip: every file compressed.'),
  ];
  const changed = [
    idUser,
    parameter('canExport?', toggle, 'Whether the user may create exports.'),
    parameter('maxExports?', text, 'Maximum simultaneous requests of the user; none: the limit of the account.'),
    parameter('files?', packing, 'gzip: every file compressed.'),
  ];
  const base = '/api/operations/v1';
  return {
    [`${base}/users.json`]: {
      get: method('List the users of all accounts.', pageArguments, object({ users: listOf(user), total: count })),
    },
    [`${base}/user/add.json`]: change('Create a user.', parameters, secret, {}),
    [`${base}/user/set.json`]: change('Update the permissions and the file compression of a user.', changed, user),
    [`${base}/user/secret.json`]: change('Create a new secret of a user and revoke the old one.', [idUser], secret),
    [`${base}/user/remove.json`]: change('Remove a user.', [idUser], object({ idUser: text, name: text })),
  };
}

function describeAudit(): Record<string, Schema> {
  const optional = auditColumns.filter((column) => !['time', 'action', 'outcome', 'id', 'count'].includes(column));
  const entry = object({
    time: moment,
    ...members(text, 'action', 'outcome', 'id'),
    ...Object.fromEntries(optional.map((column) => [`${column}?`, text])),
    'count?': note(count, 'Number of equal downloads or refusals within ten minutes of the first.'),
  });
  const limit = parameter('limit?', count, 'Maximum number of entries. Default: 100, at most 1000.');
  const list = object({ entries: listOf(entry), hasMore: note(flag, 'Whether older entries exist.') });
  const get = method('List the newest entries of the audit log. Operators only.', [limit], list);
  return { '/api/operations/v1/audit.json': { get } };
}

export function describeOperationsApi(): OpenApiPart {
  const status = method('Get the status of the service. Operators only.', [], describeStatus());
  return {
    area: 'export',
    paths: {
      '/api/operations/v1/status.json': { get: status },
      ...describeAppChanges(),
      ...describeUserChanges(),
      ...describeAudit(),
    },
    examples: operationsExamples,
    components: { schemas: {}, securitySchemes: {} },
  };
}
