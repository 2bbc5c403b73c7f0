import type { OpenApiExample } from '../../runtime/http/openapi.ts';

const done = (data: unknown): unknown => ({ code: 200, message: 'Ok', data });
const at = '2026-01-01T00:00:00.000Z';
const idApp = '1';
const idUser = '1';
const token = '8k2mPq4Zc1vX7nB5tY9sL3hJ6dF0gRwAeUiOoQzNxK4';
const prefix = token.slice(0, 8);
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
  notices: [],
  startedAt: at,
  stream: { messages: 1, bytes: 9312, lagMessages: 0 },
};

const ofApp = { given: { idApp }, answer: done({ idApp, token }) };

/** The examples of what operators do, by path. */
export const operationsExamples: Readonly<Record<string, OpenApiExample>> = {
  '/api/operations/v1/status.json': { answer: done(status) },
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
