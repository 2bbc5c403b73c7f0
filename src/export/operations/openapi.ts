import { platforms } from '../../datasets/field-schema.ts';
import type { OpenApiPart, Schema } from '../../runtime/http/openapi.ts';
import { describeFormerNames } from '../../runtime/former-names.ts';
import { choice, count, flag, listOf, moment, note, object, parameter, text } from '../../runtime/http/openapi.ts';
import { pageArguments } from '../api/account-openapi.ts';
import { operationsExamples } from '../api/openapi-examples.ts';
import { method, notFound } from '../api/openapi.ts';
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

const token = object({ idApp: text, token: note(text, 'Shown this once.') });
const secret = object({ idUser: text, secret: note(text, 'Shown this once.') });
const idApp = parameter('idApp', text, 'The app, of any account.');
const idUser = parameter('idUser', text, 'The user, of any account.');
const ofNobody = { 404: { ...notFound[404], description: 'There is none, or it was removed.' } };

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
  const given = [
    idApp,
    parameter('platform', choice(platforms), 'Its platform.'),
    parameter('title?', text, 'Its title.'),
    parameter('idAccount?', text, 'Whose app it is; 1 without it.'),
    parameter('idProject?', text, 'For the idProject filter of exports.'),
    parameter('sdkKey?', text, 'Names it in the SDKKey filter of exports; one is made without it.'),
  ];
  const changed = [
    idApp,
    parameter('title?', text, 'Its title.'),
    parameter('idProject?', text, 'For the idProject filter of exports; none takes it away.'),
  ];
  const prefix = parameter('prefix', text, 'How the token begins: four characters at least.');
  const list = [...pageArguments, parameter('removed?', choice(['1']), '1: those that were removed.')];
  const revoked = object({ idApp: text, revoked: text, tokens: listOf(text) });
  const removed = object({ idApp: text, removedAt: moment, revoked: listOf(text) });
  const base = '/api/operations/v1';
  return {
    [`${base}/apps.json`]: {
      get: method('The apps of all accounts.', list, object({ apps: listOf(app), total: count })),
    },
    [`${base}/app/add.json`]: change('Add an app with its first token.', given, token, {}),
    [`${base}/app/set.json`]: change('Change the title or the project of an app.', changed, app),
    [`${base}/app/token.json`]: change('Give an app a further token.', [idApp], token),
    [`${base}/app/revoke.json`]: change('End a token.', [idApp, prefix], revoked),
    [`${base}/app/remove.json`]: change('Remove an app with its tokens; its rows stay.', [idApp], removed),
    [`${base}/app/restore.json`]: change('Bring a removed app back.', [idApp], token),
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
  const given = [
    parameter('name', text, 'A name that the account does not have yet.'),
    parameter('idAccount?', text, 'The account; an operator may go without.'),
    parameter('operator?', toggle, 'An operator; 0 without it.'),
    parameter('canExport?', toggle, 'May order exports; 1 without it.'),
    parameter('maxExports?', text, "Simultaneous requests of this user, within the account's."),
    parameter('files?', packing, 'gzip: every file compressed.'),
  ];
  const changed = [
    idUser,
    parameter('canExport?', toggle, 'May order exports.'),
    parameter('maxExports?', text, "Simultaneous requests of this user; none: as many as the account's."),
    parameter('files?', packing, 'gzip: every file compressed.'),
  ];
  const base = '/api/operations/v1';
  return {
    [`${base}/users.json`]: {
      get: method('The users of all accounts.', pageArguments, object({ users: listOf(user), total: count })),
    },
    [`${base}/user/add.json`]: change('Add a user.', given, secret, {}),
    [`${base}/user/set.json`]: change('Change what a user may, and how files come.', changed, user),
    [`${base}/user/secret.json`]: change('Give a user a new secret.', [idUser], secret),
    [`${base}/user/remove.json`]: change('Remove a user.', [idUser], object({ idUser: text, name: text })),
  };
}

export function describeOperationsApi(): OpenApiPart {
  const status = method('How the service is now. Operators only, as all of these.', [], describeStatus());
  return {
    area: 'export',
    paths: {
      '/api/operations/v1/status.json': { get: status },
      ...describeAppChanges(),
      ...describeUserChanges(),
    },
    examples: operationsExamples,
    components: { schemas: {}, securitySchemes: {} },
  };
}
