import { platforms } from '../../datasets/field-schema.ts';
import type { OpenApiPart } from '../../runtime/http/openapi.ts';
import { moment } from '../api/app-openapi.ts';
import { argument, pageArguments } from '../api/data-openapi.ts';
import { count, method, notFound, object, text, type Schema } from '../api/openapi.ts';
import { operationsExamples } from './openapi-examples.ts';

const list = (items: Schema): Schema => ({ type: 'array', items });
const flag: Schema = { type: 'boolean' };
const optional = (required: Readonly<Record<string, Schema>>, others: Readonly<Record<string, Schema>>): Schema =>
  object({ ...required, ...others }, Object.keys(required));

function describeStatus(): Schema {
  const problem = optional({ code: text, what: text, todo: text }, { subject: text, since: moment });
  const process = optional(
    { name: text, state: { type: 'string', enum: ['starting', 'running', 'waiting', 'stopped'] }, restarts: count },
    { pid: count, lastError: text, unsteady: flag },
  );
  const ingest = optional(
    { process: text, events: count, refused: { type: 'object', additionalProperties: count } },
    { pid: count },
  );
  const lake = ['version', 'files', 'streamed', 'stored', 'failed', 'repeats', 'erased'] as const;
  return optional(
    {
      at: moment,
      ready: flag,
      version: text,
      processes: list(process),
      ingest: { ...list(ingest), description: 'Since the start of each process.' },
      lake: optional({}, { ...Object.fromEntries(lake.map((name) => [name, count])), watermark: moment }),
      exports: object({ running: count, inProgress: count, reports: count }),
      diskReserveBytes: count,
      disks: list(object({ holds: list(text), freeBytes: count, totalBytes: count })),
      problems: list(problem),
      notices: list(problem),
    },
    { startedAt: moment, stream: optional({ messages: count, bytes: count }, { lagMessages: count }) },
  );
}

const token = object({ idApp: text, token: { ...text, description: 'Shown this once.' } });
const secret = object({ idUser: text, secret: { ...text, description: 'Shown this once.' } });
const idApp = argument('idApp', true, 'The app, of any account.');
const idUser = argument('idUser', true, 'The user, of any account.');
const ofNobody = { 404: { ...notFound[404], description: 'There is none, or it was removed.' } };

function describeAppChanges(): Record<string, Schema> {
  const app = optional(
    {
      idApp: text,
      platform: { type: 'string', enum: platforms },
      title: text,
      idAccount: text,
      sdkKey: text,
      tokens: list(object({ prefix: text, createdAt: moment })),
    },
    { idProject: text, removedAt: moment },
  );
  const removed = argument('removed', false, '1: those that were removed.', { type: 'string', enum: ['1'] });
  const given = [
    idApp,
    argument('platform', true, 'Its platform.', { type: 'string', enum: platforms }),
    argument('title', false, 'Its title.'),
    argument('idAccount', false, 'Whose app it is; 1 without it.'),
    argument('idProject', false, 'For the idProject filter of exports.'),
    argument('sdkKey', false, 'Names it in the SDKKey filter of exports; one is made without it.'),
  ];
  const prefix = argument('prefix', true, 'How the token begins: four characters at least.');
  const base = '/api/operations/v1';
  return {
    [`${base}/apps.json`]: {
      get: method(
        'The apps of all accounts.',
        [...pageArguments, removed],
        object({ apps: list(app), total: count }),
        {},
      ),
    },
    [`${base}/app/add.json`]: { post: method('Add an app with its first token.', given, token, {}) },
    [`${base}/app/set.json`]: {
      post: method(
        'Change the title or the project of an app.',
        [
          idApp,
          argument('title', false, 'Its title.'),
          argument('idProject', false, 'For the idProject filter of exports; none takes it away.'),
        ],
        app,
        ofNobody,
      ),
    },
    [`${base}/app/token.json`]: { post: method('Give an app a further token.', [idApp], token, ofNobody) },
    [`${base}/app/revoke.json`]: {
      post: method(
        'End a token.',
        [idApp, prefix],
        object({ idApp: text, revoked: text, tokens: list(text) }),
        ofNobody,
      ),
    },
    [`${base}/app/remove.json`]: {
      post: method(
        'Remove an app with its tokens; its rows stay.',
        [idApp],
        object({ idApp: text, removedAt: moment, revoked: list(text) }),
        ofNobody,
      ),
    },
    [`${base}/app/restore.json`]: { post: method('Bring a removed app back.', [idApp], token, ofNobody) },
  };
}

function describeUserChanges(): Record<string, Schema> {
  const user = optional(
    { idUser: text, name: text, canExport: flag, files: { type: 'string', enum: ['auto', 'gzip'] } },
    { idAccount: text, maxExports: count, operator: flag },
  );
  const toggle: Schema = { type: 'string', enum: ['0', '1'] };
  const given = [
    argument('name', true, 'A name that the account does not have yet.'),
    argument('idAccount', false, 'The account; an operator may go without.'),
    argument('operator', false, 'An operator; 0 without it.', toggle),
    argument('canExport', false, 'May order exports; 1 without it.', toggle),
    argument('maxExports', false, "Simultaneous requests of this user, within the account's."),
    argument('files', false, 'gzip: every file compressed.', { type: 'string', enum: ['auto', 'gzip'] }),
  ];
  const base = '/api/operations/v1';
  return {
    [`${base}/users.json`]: {
      get: method('The users of all accounts.', pageArguments, object({ users: list(user), total: count }), {}),
    },
    [`${base}/user/add.json`]: { post: method('Add a user.', given, secret, {}) },
    [`${base}/user/set.json`]: {
      post: method(
        'Change what a user may, and how files come.',
        [
          idUser,
          argument('canExport', false, 'May order exports.', toggle),
          argument('maxExports', false, "Simultaneous requests of this user; none: as many as the account's."),
          argument('files', false, 'gzip: every file compressed.', { type: 'string', enum: ['auto', 'gzip'] }),
        ],
        user,
        ofNobody,
      ),
    },
    [`${base}/user/secret.json`]: { post: method('Give a user a new secret.', [idUser], secret, ofNobody) },
    [`${base}/user/remove.json`]: {
      post: method('Remove a user.', [idUser], object({ idUser: text, name: text }), ofNobody),
    },
  };
}

/** The part of the API reference on what operators do. Everybody else is answered 403. */
export function describeOperationsApi(): OpenApiPart {
  const status = method('How the service is now. Operators only, as all of these.', [], describeStatus(), {});
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
