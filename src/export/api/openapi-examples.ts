import path from 'node:path';
import type { OpenApiExample } from '../../runtime/http/openapi.ts';

/** Examples by path; a test validates each against its schema. */
export type Examples = Readonly<Record<string, OpenApiExample>>;

export const done = (data: unknown): unknown => ({ code: 200, message: 'Ok', data });

export const order = {
  event: 'customEvents',
  selectors: ['tsEvent', 'eventName', 'params.name'],
  dateFrom: '2026-01-01',
  dateTo: '2026-01-07',
  timezone: 'UTC',
};
export const idRawExport = '17';
const idReportFile = '17';
const basis = { version: '812', nextSinceVersion: '812-9f0c41d2', timestampKeptUntil: '1767312000' };
const sha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08';
const signed = { expires: '1767312000', kid: '0b3f5dff', signature: sha256, user: '1' };
const name = `17.customEvents.${sha256.slice(0, 32)}.csv`;
const link = (file: string) => ({
  link: `https://api.example.com/files/17/${file}?${new URLSearchParams({ ...signed, 'x-ending': path.extname(file) }).toString()}`,
  timestampExpires: signed.expires,
});
const files = [{ ...link(name), rows: 131_502, bytes: 7_912_344, sha256 }];
const finished = {
  idReportFile,
  status: 'Success!',
  files,
  format: 'csv',
  hasHeader: true,
  archive: link(name.replace('.csv', '.zip')),
  manifest: link(name.replace('.csv', '.manifest.json')),
  ...basis,
};
const summary = {
  idReportFile,
  idRawExport,
  event: order.event,
  status: 'Success!',
  timestampCreated: '1767225600',
  timestampExpires: signed.expires,
  files: 1,
  rows: 131_502,
  bytes: 7_912_344,
};
const ordered = {
  idReportFile: '18',
  idRawExport: '18',
  event: order.event,
  status: 'In progress',
  timestampCreated: '1767225700',
  progress: '40%',
  isCancellable: true,
  arguments: {
    event: order.event,
    timezone: 'UTC',
    selectors: order.selectors,
    tsFrom: '1767139200',
    tsTo: '1767225599',
  },
};
const estimate = {
  rows: { atLeast: 120_000, expected: 131_500, atMost: 140_200 },
  bytes: { atLeast: 5_400_000, expected: 7_900_000, atMost: 21_000_000 },
  parts: { atLeast: 1, atMost: 1 },
  seconds: 0.9,
  overLimit: false,
  overLimits: [],
  ...basis,
};
const preview = {
  columns: ['tsEvent', 'eventName', 'params.name'],
  rows: [['1767225600', 'level_up', "['level']"]],
  isTruncated: true,
  ...basis,
};
const key = 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a';

const dictionaries: Readonly<Record<string, unknown>> = {
  events: { device: ['installs', 'payments'], user: ['customEvents', 'logins'] },
  selectors: [{ name: 'tsEvent', type: 'integer', meaning: 'When it happened, Unix seconds.' }],
  countries: { 25: 'Estonia', 26: 'Latvia' },
  timezones: ['UTC', 'Europe/Moscow'],
  verification: { 0: 'unverified', 1: 'verified' },
  'purchase-types': { 1: 'purchase', 2: 'subscription' },
  rooted: { 0: 'unknown', 1: 'rooted', 2: 'not rooted' },
  'ad-mediators': { 0: 'Unknown', 1: 'ironSource' },
  'connection-types': { 0: 'unknown', 1: 'mobile', 2: 'wi-fi' },
};

export const exportExamples: Examples = {
  '/api/raw/v1/export/create.json': { given: order, body: order, answer: done({ idRawExport }) },
  '/api/raw/v1/export/estimate.json': { given: order, body: order, answer: done(estimate) },
  '/api/raw/v1/export/preview.json': { given: order, body: order, answer: done(preview) },
  '/api/raw/v1/export/daily.json': {
    given: order,
    body: order,
    answer: done({ days: [{ date: '2026-01-01', rows: 131_502 }], ...basis }),
  },
  '/api/raw/v1/export/get.json': { given: { idRawExport }, answer: done({ idRawExport, ...finished }) },
  '/api/raw/v1/export/cancel.json': { given: { idRawExport }, answer: done({ idRawExport, info: 'Canceled' }) },
  '/api/raw/v1/export/list.json': {
    given: { limit: 2 },
    answer: done({ exports: [ordered, summary], total: 17, before: idRawExport }),
  },
  '/api/report/v1/file/get.json': { given: { idReportFile }, answer: done(finished) },
  '/api/report/v1/file/list.json': { answer: done({ reports: [summary] }) },
  '/manifest-key.json': { answer: done({ algorithm: 'Ed25519', key }) },
  '/files/{id}/{name}': { given: { id: idReportFile, name, ...signed, Range: 'bytes=1048576-' } },
  ...Object.fromEntries(
    Object.entries(dictionaries).map(([dictionary, data]) => [
      `/api/dictionary/v1/${dictionary}.json`,
      { answer: done(data) },
    ]),
  ),
};

const notice = {
  id: 'n-1',
  kind: 'parameter_new',
  idApp: 1,
  customEventName: 'level_up',
  parameter: 'coins',
  date: '2026-01-01',
  foundAt: '2026-01-01T02:00:00.000Z',
  what: "level_up has a new parameter, 'coins'",
};
const seen = { firstSeen: '2025-12-24T08:00:00.000Z', lastSeen: '2026-01-01T01:59:00.000Z' };
const refusal = {
  time: '2026-01-01T00:00:00.000Z',
  method: 'customEvent',
  status: 400,
  error: 'Bad Request',
  detail: '/customEventName is required',
  errors: [{ pointer: '/customEventName', reason: 'is required' }],
  bytes: 20,
  requests: 1,
};

export const appExamples: Examples = {
  '/api/catalogue/v1/get.json': {
    given: { idApp: '1', customEventName: 'level_up' },
    answer: done({
      version: '812',
      isComplete: true,
      missingFiles: 0,
      customEvents: [
        {
          customEventName: 'level_up',
          events: 4200,
          sealed: 4200,
          sampledEvents: 4200,
          ...seen,
          moreParameters: 0,
          days: [{ date: '2026-01-01', events: 600 }],
          parameters: [
            {
              name: 'level',
              type: 'integer',
              seen: 4200,
              distinctValues: 60,
              untyped: 0,
              types: { integer: 4200, long: 0, decimal: 0, boolean: 0, date: 0, time: 0, text: 0, empty: 0 },
              examples: ['3', '4'],
              ...seen,
            },
          ],
        },
      ],
      more: { names: 0, events: 0 },
      notices: [notice],
    }),
  },
  '/api/app/v1/refusals.json': { given: { idApp: '1', limit: 10 }, answer: done({ refusals: [refusal] }) },
  '/api/app/v1/live': {
    given: { idApp: '1' },
    answer: `event: event\ndata: {"kind":"custom_event","custom_event_name":"level_up"}\n\nevent: refusal\ndata: ${JSON.stringify(refusal)}\n\n`,
  },
};

const { version } = basis;
const days = { dateFrom: '2026-01-01', dateTo: '2026-01-07' };
const field = {
  name: 'customEventName',
  column: 'custom_event_name',
  type: 'VARCHAR',
  description: 'Name of the custom event.',
  nonNullEvents: 4200,
};

const activeApp = {
  idApp: '1',
  title: 'My game',
  platform: 'web',
  events: 4200,
  lastDate: '2023-02-26',
  kinds: [{ kind: 'custom_event', events: 4200, lastDate: '2023-02-26' }],
};

export const dataExamples: Examples = {
  '/api/data/v1/apps.json': {
    given: { search: 'game', limit: 100 },
    answer: done({ apps: [{ idApp: '1', title: 'My game', platform: 'web' }], total: 1 }),
  },
  '/api/data/v1/activity.json': {
    given: { search: 'game' },
    answer: done({
      apps: [{ ...activeApp, firstDate: '2023-02-20', days: [...Array<number>(29).fill(0), 4200] }],
      total: 1,
      events: 4200,
      lastDate: '2023-02-26',
      kinds: activeApp.kinds,
      isComplete: true,
    }),
  },
  '/api/data/v1/volume.json': {
    given: { idApp: '1', ...days },
    answer: done({ version, ...days, days: [{ date: days.dateFrom, kind: 'custom_event', events: 4200 }] }),
  },
  '/api/data/v1/fields.json': {
    given: { idApp: '1', kind: 'custom_event', ...days },
    answer: done({ version, kind: 'custom_event', sampledEvents: 4200, ...days, isComplete: true, fields: [field] }),
  },
};

const at = '2026-01-01T00:00:00.000Z';
const idApp = '1';
const idUser = '1';
const token = '8k2mPq4Zc1vX7nB5tY9sL3hJ6dF0gRwAeUiOoQzNxK4';
const prefix = token.slice(0, 8);
const action = 'download';
const app = { idApp, platform: 'web', title: 'My game', idAccount: '1', sdkKey: 'my-game' };
const user = { idUser, name: 'ann', canExport: true, files: 'gzip' };

const status = {
  at,
  ready: true,
  version: '0.3.0',
  processes: [{ name: 'compact', state: 'running', restarts: 0, pid: 4711 }],
  ingest: [{ process: 'ingest-1', events: 1_204_000, refused: { rules: 12 }, pid: 4712 }],
  lake: { version: 812, files: 41, streamed: 1_204_000, stored: 1_203_988, failed: 0, repeats: 12, erased: 0 },
  exports: { running: 1, inProgress: 3, reports: 17 },
  diskReserveBytes: 268_435_456,
  disks: [{ holds: ['stream', 'lake', 'reports'], freeBytes: 76_993_232_896, totalBytes: 270_553_174_016 }],
  problems: [],
  warnings: [],
  startedAt: at,
  stream: { messages: 1, bytes: 9312, lagMessages: 0 },
};

const ofApp = { given: { idApp }, answer: done({ idApp, token }) };

export const operationsExamples: Examples = {
  '/api/operations/v1/status.json': { answer: done(status) },
  '/api/operations/v1/audit.json': {
    given: { limit: 1 },
    answer: done({
      entries: [
        {
          time: at,
          action,
          outcome: 'ok',
          idUser,
          name: user.name,
          address: '192.0.2.7',
          subject: 'export 12',
          detail: 'customEvents-12.csv',
          id: '5f0c9d2ab7e31846',
        },
      ],
      hasMore: true,
    }),
  },
  '/api/operations/v1/apps.json': {
    given: { search: 'game', limit: 100 },
    answer: done({ apps: [{ ...app, tokens: [{ prefix, createdAt: at }] }], total: 1 }),
  },
  '/api/operations/v1/app/add.json': {
    given: { idApp, platform: app.platform, title: app.title },
    answer: done({ idApp, token }),
  },
  '/api/operations/v1/app/set.json': {
    given: { idApp, title: app.title },
    answer: done({ ...app, tokens: [{ prefix, createdAt: at }] }),
  },
  '/api/operations/v1/app/token.json': ofApp,
  '/api/operations/v1/app/revoke.json': {
    given: { idApp, prefix },
    answer: done({ idApp, revoked: prefix, tokens: [] }),
  },
  '/api/operations/v1/app/remove.json': {
    given: { idApp },
    answer: done({ idApp, removedAt: at, revoked: [prefix] }),
  },
  '/api/operations/v1/app/restore.json': ofApp,
  '/api/operations/v1/users.json': {
    given: { search: 'ann', limit: 100 },
    answer: done({ users: [{ ...user, idAccount: '1', maxExports: 5 }], total: 1 }),
  },
  '/api/operations/v1/user/add.json': {
    given: { name: user.name, idAccount: '1', files: user.files },
    answer: done({ idUser, secret: token }),
  },
  '/api/operations/v1/user/set.json': {
    given: { idUser, maxExports: '5' },
    answer: done({ ...user, idAccount: '1', maxExports: 5 }),
  },
  '/api/operations/v1/user/secret.json': { given: { idUser }, answer: done({ idUser, secret: token }) },
  '/api/operations/v1/user/remove.json': { given: { idUser }, answer: done({ idUser, name: user.name }) },
};
