import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { channel } from 'node:diagnostics_channel';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addApp } from '../../src/access/apps.ts';
import { addUser } from '../../src/access/users.ts';
import { dataPaths } from '../../src/config.ts';
import { importMethods } from '../../src/datasets/dataset.ts';
import { receivedAtOf } from '../../src/datasets/event-id.ts';
import { dictionaryNames } from '../../src/datasets/dictionaries.ts';
import type { RunAttempt, RunDryRun, RunDataQuery } from '../../src/export/jobs/worker-process.ts';
import { addLoadRoute } from '../../src/ops/load-routes.ts';
import { startOpsServer } from '../../src/ops/ops-server.ts';
import { basic, send, targetOf, type Answer, type Call, type Credentials } from '../helpers/export-area.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { stores } from '../helpers/import-rules.ts';
import { eventLine, newEventId } from '../helpers/lake.ts';
import { addTestSegment } from '../helpers/lists.ts';
import { startServiceHere, type ServiceHere } from '../helpers/service-here.ts';
import { waitFor } from '../helpers/wait.ts';

/**
 * Every read of a row or a record, by its owner and by others: another app, another account, and no credentials. The
 * routes come from the served API reference and from the servers: a route without a row in the table below fails, and so
 * does a store that no row reads.
 *
 * All data of an app or account has its mark. The response to the owner must show the mark, which proves the request;
 * others must get the same response as for missing data.
 */

// Exports and lookups run in this process, so that a planted fault shows.
vi.mock('../../src/export/jobs/worker-process.ts', async () => {
  const { runExport } = await import('../../src/export/worker/run-export.ts');
  const { runDryRunJob } = await import('../../src/export/worker/dry-run/run-dry-run.ts');
  const { runDataQuery } = await import('../../src/export/worker/data/run-data-query.ts');
  const runInWorker: RunAttempt = (plan, { onPercent }) => runExport(plan, onPercent);
  const dryRunInWorker: RunDryRun = (plan) => runDryRunJob(plan);
  const queryInWorker: RunDataQuery = (plan) => runDataQuery(plan);
  return { runInWorker, dryRunInWorker, queryInWorker };
});

/** An app with the data of its account. */
interface Tenant {
  readonly idAccount: number;
  readonly idApp: string;
  readonly sdkKey: string;
  /** A text in all its data, and in no data of another. */
  readonly mark: string;
  readonly token: string;
  readonly user: Credentials;
  readonly eventId: string;
  readonly failedId: string;
  /** Idempotency-Key of a request. */
  readonly key: string;
  readonly idTransaction: string;
  readonly idRawExport: string;
  /** Path and query of a file of the export. */
  readonly link: string;
  readonly idSchedule: string;
  readonly idWebhook: string;
  readonly idDestination: string;
  readonly idSegment: string;
}

/** Ids that do not exist. */
const ghost: Tenant = {
  idAccount: 99,
  idApp: '99',
  sdkKey: 'none',
  mark: 'mark-of-nobody',
  token: 'none',
  user: { idUser: '99', secret: 'none' },
  eventId: newEventId(),
  failedId: newEventId(),
  key: 'none',
  idTransaction: 'none',
  idRawExport: '999999',
  link: '/files/999999/none.csv',
  idSchedule: 'sc_0000000000000000',
  idWebhook: 'wh_0000000000000000',
  idDestination: 'de_0000000000000000',
  idSegment: '99',
};

/** A read of a tenant's data by the methods of users. */
interface UserRow {
  readonly ask: (of: Tenant) => string;
  /** Status for a user of another account; 200: without data of the tenant. */
  readonly stranger: 200 | 400 | 404;
  /** A text in the owner's response only; the mark by default. */
  readonly shows?: (of: Tenant) => RegExp;
  /** Status for the owner; 200 by default. */
  readonly owner?: 400 | 404;
  readonly read?: (target: string, call: Call) => Promise<Answer>;
}

/** A read of an app's data with the token of an app. */
interface SenderRow {
  /** A record of the tenant, requested in addition to the app. */
  readonly sender: (of: Tenant) => string;
  readonly shows?: (of: Tenant) => RegExp;
  readonly owner?: 400 | 404;
  readonly read?: (target: string, call: Call, of: Tenant) => Promise<Answer>;
}

/**
 * `open`: the same response for all, without a mark. `operators`: rejected for users of accounts. `creates`: creates a
 * record of the caller, and reads nothing. A function: checked separately.
 */
type Row = readonly (UserRow | SenderRow)[] | 'open' | 'operators' | 'creates' | (() => Promise<void>);

const tenants: Tenant[] = [];
let service: ServiceHere;
let opsPort: number;
let operator: Credentials;
/** Received webhook messages, by path. */
const messages: { readonly path: string; readonly body: string }[] = [];
const routes = new Set<string>();
const closers: (() => unknown)[] = [];

/** Two accounts, and a second app of the first one. */
const seven = (): Tenant => tenants[0] ?? ghost;
const eight = (): Tenant => tenants[1] ?? ghost;
const nine = (): Tenant => tenants[2] ?? ghost;

const query = (values: Readonly<Record<string, string>>): string => new URLSearchParams(values).toString();
const today = (): string => new Date().toISOString().slice(0, 10);
const order = (more: Readonly<Record<string, string>>, event = 'customEvents'): string =>
  query({ event, selectors: 'customUserId', dateFrom: '1970-01-01', dateTo: today(), timezone: 'UTC', ...more });
const marked = ({ mark }: Tenant): RegExp => new RegExp(mark);

/** Calls, and retries if the service asks for it. */
async function call(port: number, target: string, options: Call = {}): Promise<Answer> {
  let answer = await send(port, target, options);
  await waitFor(`${target} is not busy`, async () => {
    if (answer.status !== 429 && answer.status !== 503) return true;
    answer = await send(port, target, options);
    return false;
  });
  return answer;
}

const callExport = (target: string, options: Call): Promise<Answer> => call(service.exportPort, target, options);
const as = (user: Credentials): Call => ({ headers: { authorization: basic(user) } });

/** Creates an export, and returns the response with the bytes of its files as the body. */
async function orderAndRead(target: string, options: Call): Promise<Answer> {
  const created = await callExport(target, options);
  if (created.status !== 200) return created;
  const get = `/api/raw/v1/export/get.json?idRawExport=${created.json?.data?.idRawExport}`;
  let answer = created;
  await waitFor('the export has ended', async () => {
    answer = await callExport(get, { headers: options.headers ?? {} });
    return answer.json?.data?.status !== 'In progress';
  });
  expect(answer.json?.data?.status).toBe('Success!');
  const files = answer.json?.data?.files ?? [];
  const parts = await Promise.all(files.map(({ link }) => send(service.exportPort, targetOf(link))));
  return { ...answer, json: undefined, body: Buffer.concat(parts.map(({ body }) => body)) };
}

const importEvent = (of: Tenant, method: string, body: object, headers: Readonly<Record<string, string>> = {}) =>
  call(service.importPort, `/v1/${method}?idApp=${of.idApp}`, {
    method: 'POST',
    headers: { authorization: of.token, ...headers },
    body: JSON.stringify(body),
  });

const customEvent = (of: Tenant, headers?: Readonly<Record<string, string>>): Promise<Answer> =>
  importEvent(of, 'customEvent', { customUserId: of.mark, customEventName: `event ${of.mark}` }, headers);

/** Listens; then imports events of all apps until one of the tenant arrives. */
async function listen(port: number, target: string, options: Call, of: Tenant): Promise<Answer> {
  const { method = 'GET', headers = {} } = options;
  const asked = httpRequest({ host: '127.0.0.1', port, path: target, method, headers, agent: false });
  asked.on('error', () => undefined).end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  const [status, answerHeaders] = [answer.statusCode ?? 0, answer.headers];
  if (status !== 200) return call(port, target, options);
  let shown = '';
  answer
    .setEncoding('utf8')
    .on('data', (chunk: string) => (shown += chunk))
    .on('error', () => undefined);
  await waitFor('an event is shown', async () => {
    for (const tenant of [nine(), eight(), seven()]) await customEvent(tenant);
    return shown.includes(of.mark);
  });
  asked.destroy();
  return { status, headers: answerHeaders, body: Buffer.from(shown), json: undefined };
}

const rowsOf = (paths: readonly string[], row: Row): Record<string, Row> =>
  Object.fromEntries(paths.map((one) => [one, row]));
const byBoth = (target: string, row: Row): Record<string, Row> => rowsOf([`get ${target}`, `post ${target}`], row);

const ofApp = ({ idApp }: Tenant): string => query({ idApp });
const nothing = (): string => '';
const state = (name: string) => (): RegExp => new RegExp(`"state":"${name}"`);
const hasRows = (): RegExp => /"rows":\{[^}]*[1-9]/;
const countsEvents = (): RegExp => /"events":[1-9]/;

/** Data of an account that can be exported, estimated and previewed, by each argument that names it. */
const orders: readonly UserRow[] = [
  { ask: ({ idApp }) => order({ idApp }), stranger: 200 },
  { ask: ({ sdkKey }) => order({ SDKKey: sdkKey }), stranger: 200 },
  { ask: ({ idApp }) => order({ idApp, sinceVersion: '0' }), stranger: 200 },
  { ask: ({ idApp }) => order({ idApp }, 'userActivities'), stranger: 200 },
  // No rows match: only the columns, or their number, are shown.
  {
    ask: ({ idSegment }) => order({ idSegment, selectors: 'eventId' }, 'installs'),
    stranger: 400,
    shows: () => /eventId|"rows":|"days":/,
  },
];

/** All as a query; the first also as a form, which is parsed the same way. */
const ofOrders = (target: string, rows: readonly UserRow[]): Record<string, Row> => ({
  [`get ${target}`]: rows,
  [`post ${target}`]: rows.slice(0, 1),
});

async function checkFile(): Promise<void> {
  for (const [owner, stranger] of pairs()) {
    const [file = ''] = owner.link.split('?');
    const [, signed = ''] = stranger.link.split('?');
    for (const target of [file, `${file}?${signed}`]) {
      for (const caller of [as(stranger.user), {}]) {
        const answer = await callExport(target, caller);
        expect({ target, status: answer.status }).toEqual({ target, status: 403 });
        expect(answer.body.toString()).not.toMatch(marked(owner));
      }
    }
    const own = await callExport(owner.link, {});
    expect([own.status, own.body.toString()]).toEqual([200, expect.stringMatching(marked(owner))]);
  }
}

/** Signs in; returns the headers of requests of the page. */
async function signIn(user: Credentials): Promise<Readonly<Record<string, string>>> {
  const answer = await callExport('/console/session', { method: 'POST', body: JSON.stringify(user) });
  expect(answer.status).toBe(200);
  const { csrfToken = '' } = (answer.json?.data ?? {}) as { readonly csrfToken?: string };
  const cookies = [answer.headers['set-cookie'] ?? []].flat().map((cookie) => cookie.split(';')[0]);
  return { cookie: cookies.join('; '), 'x-csrf-token': csrfToken };
}

async function checkSession(): Promise<void> {
  const session = '/console/session';
  for (const [owner, stranger] of pairs()) {
    const [own, other] = [await signIn(owner.user), await signIn(stranger.user)];
    const forged = JSON.stringify({ idUser: owner.user.idUser, secret: stranger.user.secret });
    const refused = await callExport(session, { method: 'POST', body: forged });
    expect([refused.status, refused.headers['set-cookie']]).toEqual([401, undefined]);
    expect((await callExport(session, {})).status).toBe(401);
    for (const [headers, shown, hidden] of [
      [own, owner, stranger],
      [other, stranger, owner],
    ] as const) {
      const answer = await callExport(session, { headers });
      expect(answer.body.toString()).toMatch(marked(shown));
      expect(answer.body.toString()).not.toMatch(marked(hidden));
    }
    // A session has the permissions of its user; a cookie with the token of another session has none.
    const target = `/api/raw/v1/export/get.json?idRawExport=${owner.idRawExport}`;
    const mixed = { ...own, 'x-csrf-token': other['x-csrf-token'] ?? '' };
    const statuses = await Promise.all(
      [own, other, mixed].map(async (headers) => (await callExport(target, { headers })).status),
    );
    expect(statuses).toEqual([200, 404, 403]);
    await callExport(session, { method: 'DELETE', headers: other });
    expect((await callExport(session, { headers: other })).status).toBe(401);
    expect((await callExport(session, { headers: own })).status).toBe(200);
  }
}

async function checkLoad(): Promise<void> {
  for (const { user, token, mark } of tenants) {
    for (const authorization of [basic(user), token, `Bearer ${token}`, `Bearer ${user.secret}`]) {
      const headers = { authorization, 'content-type': 'text/csv' };
      const answer = await call(opsPort, '/api/load/v1/installs', { method: 'POST', headers, body: 'a\n1\n' });
      expect([answer.status, answer.body.toString()]).toEqual([401, expect.not.stringContaining(mark)]);
    }
  }
}

/** Looks up the events of a tenant at an app, with the token of an app. */
const askMany = ({ idApp }: Tenant, { token }: Tenant, { eventId, failedId, key, idTransaction }: Tenant) =>
  call(service.importPort, `/v1/events?idApp=${idApp}`, {
    method: 'POST',
    headers: { authorization: token },
    body: JSON.stringify([{ eventId }, { eventId: failedId }, { key }, { idTransaction }]),
  });

const statesOf = ({ body }: Answer): string[] =>
  (JSON.parse(body.toString()) as { readonly events: readonly { readonly state: string }[] }).events.map(
    (event) => event.state,
  );

/** Looks up the events of each app as itself, and as the others. */
async function checkEvents(): Promise<void> {
  for (const owner of tenants) {
    expect(statesOf(await askMany(owner, owner, owner))).toEqual(['in_lake', 'failed', 'in_lake', 'in_lake']);
    for (const other of tenants.filter((tenant) => tenant !== owner)) {
      const foreign = await askMany(other, other, owner);
      expect(statesOf(foreign)).toEqual(['never_seen', 'never_seen', 'never_seen', 'never_seen']);
      expect((await askMany(owner, other, owner)).status).toBe(403);
    }
  }
}

async function checkMetrics(): Promise<void> {
  expect((await call(opsPort, '/metrics')).body.toString()).not.toMatch(/mark-of/);
}

/** Public calls. */
const openPaths = [
  ...dictionaryNames.map((name) => `get /api/dictionary/v1/${name}.json`),
  ...['healthz', 'readyz', 'openapi.json', 'docs', 'manifest-key.json'].map((name) => `get /${name}`),
  ...['/', '/console', '/console/*', '/console/dictionary.json', '/console/sign-in.json'].map((name) => `get ${name}`),
  'post /v1/version',
  'get /v1/receipt-key',
];

const operatorPaths = [
  ...['status', 'apps', 'users', 'audit'].map((name) => `get /api/operations/v1/${name}.json`),
  ...['add', 'set', 'token', 'revoke', 'remove', 'restore'].map((name) => `post /api/operations/v1/app/${name}.json`),
  ...['add', 'set', 'secret', 'remove'].map((name) => `post /api/operations/v1/user/${name}.json`),
];

/** A write with an empty body: the owner's is rejected because of the body, not of the token. */
const writes: Row = [{ sender: nothing, owner: 400, shows: () => /Bad Request/ }];

/** In order: calls that remove a record come last. */
const table: Readonly<Record<string, Row>> = {
  ...rowsOf(openPaths, 'open'),
  ...rowsOf(operatorPaths, 'operators'),
  ...rowsOf(
    [...importMethods.keys()].map((method) => `post /v1/${method}`),
    writes,
  ),
  'post /v1/test-app-access': [{ sender: nothing, shows: () => /Ok/ }],
  'get /v1/event': [
    { sender: ({ eventId }) => query({ eventId }), shows: state('in_lake') },
    { sender: ({ failedId }) => query({ eventId: failedId }), shows: state('failed') },
    { sender: ({ key }) => query({ key }), shows: state('in_lake') },
    { sender: ({ idTransaction }) => query({ idTransaction }), shows: state('in_lake') },
  ],
  'post /v1/events': checkEvents,
  'get /v1/refusals': [{ sender: nothing }],
  'get /v1/live': [{ sender: nothing, read: (target, options, of) => listen(service.importPort, target, options, of) }],
  'get /api/app/v1/refusals.json': [{ ask: ofApp, stranger: 404 }],
  'get /api/app/v1/live': [{ ask: ofApp, stranger: 404, read: listenAsUser }],
  ...ofOrders(
    '/api/raw/v1/export/create.json',
    orders.map((row) => ({ ...row, read: orderAndRead })),
  ),
  ...ofOrders(
    '/api/raw/v1/export/estimate.json',
    orders.map((row) => ({ shows: hasRows, ...row })),
  ),
  ...ofOrders('/api/raw/v1/export/preview.json', orders),
  ...ofOrders(
    '/api/raw/v1/export/daily.json',
    orders.map((row) => ({ shows: () => /"rows":[1-9]/, ...row })),
  ),
  ...byBoth('/api/raw/v1/export/get.json', [
    { ask: ({ idRawExport }) => query({ idRawExport }), stranger: 404, shows: () => /Success!/ },
  ]),
  ...byBoth('/api/report/v1/file/get.json', [
    { ask: ({ idRawExport }) => query({ idReportFile: idRawExport }), stranger: 404, shows: () => /Success!/ },
  ]),
  'get /api/raw/v1/export/list.json': [{ ask: nothing, stranger: 200, shows: ofExport }],
  'get /api/report/v1/file/list.json': [{ ask: nothing, stranger: 200, shows: ofExport }],
  ...rowsOf(['get /files/{id}/{name}', 'head /files/{id}/{name}'], checkFile),
  'get /api/data/v1/apps.json': [
    { ask: nothing, stranger: 200 },
    { ask: ({ mark }) => query({ search: mark }), stranger: 200 },
    { ask: ofApp, stranger: 404 },
  ],
  'get /api/data/v1/activity.json': [
    { ask: nothing, stranger: 200 },
    { ask: ofApp, stranger: 404, shows: countsEvents },
  ],
  'get /api/data/v1/volume.json': [{ ask: ofApp, stranger: 404, shows: countsEvents }],
  'get /api/data/v1/fields.json': [
    { ask: ({ idApp }) => query({ idApp, kind: 'custom_event' }), stranger: 404, shows: () => /"nonNullEvents":[1-9]/ },
  ],
  ...byBoth('/api/catalogue/v1/get.json', [
    { ask: ofApp, stranger: 404 },
    { ask: ({ idApp, mark }) => query({ idApp, customEventName: `event ${mark}` }), stranger: 404 },
  ]),
  ...rowsOf(
    [...['get', 'post', 'delete'].map((verb) => `${verb} /console/session`), 'post /console/password'],
    checkSession,
  ),
  'post /api/webhook/v1/create.json': 'creates',
  'get /api/webhook/v1/list.json': [{ ask: nothing, stranger: 200 }],
  'post /api/destination/v1/create.json': 'creates',
  'get /api/destination/v1/list.json': [{ ask: nothing, stranger: 200 }],
  'post /api/destination/v1/secret.json': [
    { ask: ({ idDestination }) => query({ idDestination, secret: 's' }), stranger: 404 },
  ],
  'post /api/schedule/v1/create.json': 'creates',
  'get /api/schedule/v1/list.json': [{ ask: nothing, stranger: 200 }],
  'get /api/schedule/v1/get.json': [{ ask: ofSchedule, stranger: 404 }],
  'get /api/schedule/v1/runs.json': [{ ask: ofSchedule, stranger: 404, shows: () => /"runs":/ }],
  'post /api/schedule/v1/run.json': [{ ask: ofSchedule, stranger: 404 }],
  'post /api/schedule/v1/pause.json': [{ ask: ofSchedule, stranger: 404 }],
  'post /api/schedule/v1/resume.json': [{ ask: ofSchedule, stranger: 404 }],
  'post /api/load/v1/:dataset': checkLoad,
  'get /metrics': checkMetrics,
  ...byBoth('/api/raw/v1/export/cancel.json', [
    {
      ask: ({ idRawExport }) => query({ idRawExport }),
      stranger: 404,
      owner: 400,
      shows: () => /already completed/,
    },
  ]),
  'get /api/webhook/v1/deliveries.json': [{ ask: ofWebhook, stranger: 404, shows: () => /"deliveries":/ }],
  'post /api/webhook/v1/test.json': [
    { ask: ofWebhook, stranger: 404, shows: ({ idWebhook }) => new RegExp(idWebhook) },
  ],
  'post /api/webhook/v1/resend.json': [
    { ask: ofWebhook, stranger: 404, owner: 404, shows: () => /not in the last deliveries/ },
  ],
  'post /api/webhook/v1/rotate.json': [{ ask: ofWebhook, stranger: 404, shows: () => /whsec_/ }],
  'post /api/webhook/v1/delete.json': [
    { ask: ofWebhook, stranger: 404, shows: ({ idWebhook }) => new RegExp(idWebhook) },
  ],
  'post /api/destination/v1/delete.json': [
    {
      ask: ({ idDestination }) => query({ idDestination }),
      stranger: 404,
      shows: ({ idDestination }) => new RegExp(idDestination),
    },
  ],
  'post /api/schedule/v1/delete.json': [
    { ask: ofSchedule, stranger: 404, shows: ({ idSchedule }) => new RegExp(idSchedule) },
  ],
};

function ofWebhook({ idWebhook }: Tenant): string {
  return query({ idWebhook });
}

function ofSchedule({ idSchedule }: Tenant): string {
  return query({ idSchedule });
}

function ofExport({ idRawExport }: Tenant): RegExp {
  return new RegExp(`"idReportFile":"${idRawExport}"`);
}

function listenAsUser(target: string, options: Call): Promise<Answer> {
  const of = tenants.find(({ idApp }) => target.endsWith(`idApp=${idApp}`)) ?? ghost;
  return listen(service.exportPort, target, options, of);
}

/** The rows that read each store, or why none does. */
const storeRows: Readonly<Record<string, readonly string[] | string>> = {
  stream: ['get /v1/event', 'get /v1/live'],
  lake: ['get /v1/event', 'post /api/raw/v1/export/create.json', 'get /api/catalogue/v1/get.json'],
  reports: ['get /api/raw/v1/export/get.json', 'get /files/{id}/{name}'],
  audit: ['get /api/operations/v1/audit.json'],
  access: ['get /api/data/v1/apps.json', 'get /console/session', 'get /api/operations/v1/users.json'],
  segments: ['post /api/raw/v1/export/create.json'],
  titles: 'those of all apps are the same',
  webhooks: ['get /api/webhook/v1/list.json', 'post /api/webhook/v1/delete.json'],
  schedules: ['get /api/schedule/v1/get.json'],
  destinations: ['get /api/destination/v1/list.json'],
  enrichment: 'stores nothing',
  refusals: ['get /v1/refusals', 'get /api/app/v1/refusals.json'],
  live: ['get /v1/live', 'get /api/app/v1/live'],
  receipts: ['get /v1/receipt-key'],
};

/** Each owner with a user of another account. */
function pairs(): readonly (readonly [owner: Tenant, stranger: Tenant])[] {
  return [
    [seven(), eight()],
    [eight(), seven()],
  ];
}

function expectStatus(about: string, { status, body }: Answer, expected: number): void {
  const shown = status === expected ? '' : body.toString();
  expect({ about, status, shown }).toEqual({ about, status: expected, shown: '' });
}

/** Expects that a response has a text, or does not. */
function expectText(about: string, body: Buffer, pattern: RegExp, has: boolean): void {
  const shown = body.toString();
  expect({ about, shown, has: pattern.test(shown) }).toEqual({ about, shown, has });
}

/** Sends values by a verb: in the query, or as a form. */
function place(verb: string, target: string, values: string): readonly [string, Call] {
  const isForm = verb === 'post';
  return [isForm || values === '' ? target : `${target}?${values}`, isForm ? { method: 'POST', body: values } : {}];
}

async function checkUserRow(route: string, row: UserRow): Promise<void> {
  const [verb = '', target = ''] = route.split(' ');
  const { ask, stranger: status, shows = marked, owner: ownStatus = 200, read = callExport } = row;
  const readAs = (caller: Call, of: Tenant): Promise<Answer> => {
    const [placed, options] = place(verb, target, ask(of));
    return read(placed, { ...options, ...caller });
  };
  for (const [owner, stranger] of pairs()) {
    const about = `${route} ${ask(owner)}`;
    const other = await readAs(as(stranger.user), owner);
    expectStatus(about, other, status);
    if (status === 404) expect(other.body).toEqual((await readAs(as(stranger.user), ghost)).body);
    const nobody = await readAs({}, owner);
    expectStatus(about, nobody, 403);
    for (const { body } of [other, nobody])
      for (const hidden of [marked(owner), shows(owner)]) expectText(about, body, hidden, false);
    const own = await readAs(as(owner.user), owner);
    expectStatus(about, own, ownStatus);
    expectText(about, own.body, shows(owner), true);
    expectText(about, own.body, marked(stranger), false);
  }
}

async function checkSenderRow(route: string, row: SenderRow): Promise<void> {
  const [verb = '', target = ''] = route.split(' ');
  const { sender, shows = marked, owner: ownStatus = 200 } = row;
  const read = row.read ?? ((placed: string, options: Call) => call(service.importPort, placed, options));
  const readAs = (token: string | undefined, app: Tenant, of: Tenant): Promise<Answer> => {
    const asked = `${target}?idApp=${app.idApp}&${sender(of)}`;
    const headers = token === undefined ? {} : { authorization: token };
    return read(asked, { method: verb.toUpperCase(), headers, ...(verb === 'post' ? { body: '{}' } : {}) }, app);
  };
  for (const [owner, stranger] of [...pairs(), [seven(), nine()], [nine(), seven()]] as const) {
    const about = `${route} ${sender(owner)} of ${owner.idApp} by ${stranger.idApp}`;
    const refused = await readAs(stranger.token, owner, owner);
    expectStatus(about, refused, 403);
    expect(refused.body).toEqual((await readAs(stranger.token, ghost, owner)).body);
    const nobody = await readAs(undefined, owner, owner);
    expectStatus(about, nobody, 403);
    const others = [refused, nobody];
    // With its app and token, for a record of the owner.
    if (sender(owner) !== '') {
      const other = await readAs(stranger.token, stranger, owner);
      expect({ about, status: other.status, body: String(other.body) }).toEqual({
        about,
        status: 200,
        body: expect.stringContaining('"state":"never_seen","events":[]'),
      });
      others.push(other);
    }
    for (const { body } of others)
      for (const hidden of [marked(owner), shows(owner)]) expectText(about, body, hidden, false);
    const own = await readAs(owner.token, owner, owner);
    expectStatus(about, own, ownStatus);
    expectText(about, own.body, shows(owner), true);
    expectText(about, own.body, marked(stranger), false);
  }
}

async function checkOpen(route: string): Promise<void> {
  const [verb = '', target = ''] = route.split(' ');
  const port = target.startsWith('/v1/') ? service.importPort : service.exportPort;
  const callers = [{}, ...tenants.flatMap(({ user, token }) => [as(user), { headers: { authorization: token } }])];
  const answers = await Promise.all(
    callers.map((caller) => send(port, target, { ...caller, method: verb.toUpperCase() })),
  );
  // A byte-for-byte comparison of long bodies would take seconds.
  const shown = new Set(answers.map(({ status, body }) => `${status} ${body.toString()}`));
  expect(shown.size).toBe(1);
  expect([...shown].filter((text) => text.includes('mark-of'))).toEqual([]);
}

async function checkOperators(route: string): Promise<void> {
  const [verb = '', target = ''] = route.split(' ');
  const method = verb.toUpperCase();
  for (const caller of [{}, ...tenants.map(({ user }) => as(user))]) {
    const answer = await callExport(target, { ...caller, method });
    expect([answer.status, answer.body.toString()]).toEqual([403, expect.not.stringContaining('mark-of')]);
  }
  expect([200, 400]).toContain((await callExport(target, { ...as(operator), method })).status);
}

async function checkCreates(route: string): Promise<void> {
  expect((await callExport(route.split(' ')[1] ?? '', { method: 'POST' })).status).toBe(403);
}

async function checkRow(route: string): Promise<void> {
  const row = table[route] ?? 'open';
  if (row === 'open') return checkOpen(route);
  if (row === 'operators') return checkOperators(route);
  if (row === 'creates') return checkCreates(route);
  if (typeof row === 'function') return row();
  for (const one of row) await ('sender' in one ? checkSenderRow(route, one) : checkUserRow(route, one));
}

/** Adds an app, a user and a segment of an account; nothing runs yet. */
async function addTenant(dataDir: string, idAccount: number, idApp: number): Promise<Tenant> {
  const paths = dataPaths(dataDir);
  const mark = `mark-of-${idApp}`;
  const sdkKey = `key-${idApp}`;
  const { token } = await addApp(paths, { idApp, platform: 'web', idAccount, title: mark, sdkKey }, Date.now());
  const user = await addUser(paths, { name: mark, idAccount, canExport: true });
  await addTestSegment(paths.segments, { idAccount, idSegment: idApp, kind: 'custom' }, [mark]);
  const added = { idApp: String(idApp), sdkKey, mark, token, user, idSegment: String(idApp) };
  const events = { eventId: newEventId(), failedId: newEventId(), key: mark, idTransaction: mark };
  return { ...ghost, idAccount, ...added, ...events };
}

const lineOf = ({ idApp, mark }: Tenant, id: string, members: object = {}): object =>
  eventLine({ id_app: Number(idApp), custom_user_id: mark, event_id: id, received_at: receivedAtOf(id), ...members });

/** Imports the events of a tenant, and an invalid request. */
async function importAll(of: Tenant): Promise<void> {
  await customEvent(of, { 'idempotency-key': of.key });
  const revenue = { customUserId: of.mark, idTransaction: of.idTransaction, currency: 'EUR', total: 1 };
  const statuses = [
    await importEvent(of, 'customRevenue', revenue),
    await importEvent(of, 'customEvent', { customUserId: of.mark }),
  ].map(({ status }) => status);
  expect(statuses).toEqual([200, 400]);
}

/** Waits until the response to a client has the text. */
async function waitUntilThere({ idApp, token }: Tenant, target: string, values: string, shows: RegExp): Promise<void> {
  await waitFor(`${target} of ${idApp} shows ${shows.source}`, async () => {
    const asked = `${target}?idApp=${idApp}&${values}`;
    return shows.test((await call(service.importPort, asked, { headers: { authorization: token } })).body.toString());
  });
}

/** Creates the records of a tenant's account; its data is in the lake. */
async function makeRecords(of: Tenant, hook: string): Promise<Tenant> {
  const create = async (target: string, values: string) => {
    const answer = await callExport(target, { ...as(of.user), method: 'POST', body: values });
    expect([answer.status, answer.body.toString()]).toEqual([200, expect.any(String)]);
    return answer.json?.data as unknown as Readonly<Record<string, string>>;
  };
  const { idWebhook = '' } = await create('/api/webhook/v1/create.json', query({ url: `${hook}/${of.mark}` }));
  const bucket = { kind: 's3', endpoint: 'http://127.0.0.1:9', bucket: 'none', accessKeyId: 'a', secret: 's' };
  const { idDestination = '' } = await create(
    '/api/destination/v1/create.json',
    query({ ...bucket, name: `destination ${of.mark}` }),
  );
  const slots = { every: 'day', event: 'customEvents', selectors: 'customUserId', eventName: `event ${of.mark}` };
  const { idSchedule = '' } = await create('/api/schedule/v1/create.json', query(slots));
  const { idRawExport = '' } = await create('/api/raw/v1/export/create.json', order({}));
  let data: Answer['json'];
  await waitFor('the export has ended', async () => {
    data = (await callExport(`/api/raw/v1/export/get.json?${query({ idRawExport })}`, as(of.user))).json;
    return data?.data?.status !== 'In progress';
  });
  const link = targetOf(data?.data?.files?.[0]?.link ?? '');
  expect(data).toMatchObject({ data: { status: 'Success!' } });
  return { ...of, idWebhook, idDestination, idSchedule, idRawExport, link };
}

/** Starts the receiver of webhooks; returns its address. */
async function startReceiver(): Promise<string> {
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      messages.push({ path: request.url ?? '', body });
      response.end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => server.close().closeAllConnections());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Records each route of a server. Fastify publishes every server before its routes are added. */
function noteRoutes(message: unknown): void {
  (message as { fastify: FastifyInstance }).fastify.addHook('onRoute', ({ method, url }) => {
    for (const verb of [method].flat()) routes.add(nameRoute(verb, url));
  });
}

function nameRoute(verb: string, url: string): string {
  const ofTable = url === '/files/*' ? '/files/{id}/{name}' : url.replace(/^(\/v1\/.+)\/$/, '$1');
  return `${verb.toLowerCase()} ${ofTable}`;
}

async function startOps(dataDir: string): Promise<void> {
  const { lake, keys } = dataPaths(dataDir);
  const ops = await startOpsServer('127.0.0.1', 0, () => undefined, {
    disks: { folders: { data: dataDir, lake }, reserveBytes: 0 },
    names: [],
    addRoutes: addLoadRoute({ entry: '', dataDir, keysDir: keys }),
  });
  closers.push(() => ops.stop());
  opsPort = Number(new URL(ops.url).port);
}

describe('data of others', () => {
  const dataDir = path.join(temporaryFolder(), 'data');

  beforeAll(async () => {
    const hook = await startReceiver();
    for (const [idAccount, idApp] of [
      [1, 7],
      [2, 8],
      [1, 9],
    ] as const)
      tenants.push(await addTenant(dataDir, idAccount, idApp));
    operator = await addUser(dataPaths(dataDir), { name: 'operator', idAccount: 0, canExport: false, operator: true });
    channel('fastify.initialization').subscribe(noteRoutes);
    service = await startServiceHere(dataDir, {
      TRIBUTARY_REFUSALS_BODIES: 'on',
      TRIBUTARY_WEBHOOKS_ALLOW: '127.0.0.0/8',
      TRIBUTARY_DELIVERY_ALLOW: '127.0.0.0/8',
    });
    closers.push(() => service.stop());
    await startOps(dataDir);
    channel('fastify.initialization').unsubscribe(noteRoutes);
    // One message, and so one file: only the row distinguishes the apps.
    await service.publish(
      tenants.flatMap((of) => [lineOf(of, of.eventId), lineOf(of, of.failedId, { event_time: 'never' })]),
    );
    for (const of of tenants) await importAll(of);
    for (const of of tenants) {
      await waitUntilThere(of, '/v1/event', query({ eventId: of.eventId }), /in_lake/);
      await waitUntilThere(of, '/v1/event', query({ eventId: of.failedId }), /"state":"failed"/);
      await waitUntilThere(of, '/v1/event', query({ key: of.key }), /in_lake/);
      await waitUntilThere(of, '/v1/event', query({ idTransaction: of.idTransaction }), /in_lake/);
      await waitUntilThere(of, '/v1/refusals', '', marked(of));
    }
    for (const [index, of] of tenants.entries()) if (of !== nine()) tenants[index] = await makeRecords(of, hook);
    const reference = (await send(service.exportPort, '/openapi.json')).json as unknown as {
      readonly paths: Readonly<Record<string, object>>;
    };
    for (const [url, operations] of Object.entries(reference.paths))
      for (const verb of Object.keys(operations)) if (verb !== 'servers') routes.add(nameRoute(verb, url));
  }, 240_000);
  afterAll(async () => {
    for (const close of closers.toReversed()) await close();
  });

  it('Every route of the API reference and of the servers has a row, and every row has a route', () => {
    const isKnown = (route: string): boolean => Object.hasOwn(table, route.replace(/^head /, 'get '));
    expect([...routes].filter((route) => !isKnown(route))).toEqual([]);
    expect(Object.keys(table).filter((route) => !routes.has(route))).toEqual([]);
    expect(routes.size).toBeGreaterThan(70);
  });

  it('Every store has a row that reads it, or a reason why none does', () => {
    expect(Object.keys(storeRows).toSorted()).toEqual(stores.toSorted());
    for (const route of Object.values(storeRows).filter(Array.isArray).flat())
      expect(Object.keys(table)).toContain(route);
  });

  it('A webhook receives only the exports of its account', async () => {
    await waitFor('both have received a message', () => new Set(messages.map((message) => message.path)).size === 2);
    for (const [owner, stranger] of pairs()) {
      const told = messages.filter((message) => message.path === `/${owner.mark}`).map(({ body }) => body);
      expect(told).toEqual([expect.stringContaining(`"idRawExport":"${owner.idRawExport}"`)]);
      expect(told.join()).not.toContain(`"idRawExport":"${stranger.idRawExport}"`);
    }
  });

  it.for(Object.keys(table))(
    'Data that is read by %s is shown only to its owner',
    { timeout: 180_000 },
    async (route) => {
      expect.hasAssertions();
      await checkRow(route);
    },
  );
});
