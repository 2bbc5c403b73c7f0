import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { setPassword } from '../../src/access/passwords.ts';
import { addUser } from '../../src/access/users.ts';
import { openAuditLog } from '../../src/audit/audit-log.ts';
import { openSessionEnds, openSessionKey, type SessionEnds } from '../../src/access/session-key.ts';
import {
  createRememberedBrowsers,
  createSessions,
  maxSessionSeconds,
  type Sessions,
} from '../../src/access/sessions.ts';
import { openAccessReader } from '../../src/access/store.ts';
import { dataPaths } from '../../src/config.ts';
import { addPageRoutes, openPageFiles } from '../../src/console/page-routes.ts';
import { addSessionRoutes } from '../../src/console/session-routes.ts';
import { createSignInGuard } from '../../src/console/sign-in-guard.ts';
import { createAddMethod } from '../../src/export/api/methods-routes.ts';
import { describeExportForm } from '../../src/export/api/export-form-metadata.ts';
import { createApiServer, defaultApiServerLimits } from '../../src/export/api/server.ts';
import { createQuotas } from '../../src/export/api/quotas.ts';
import type { Quota } from '../../src/runtime/async/rate-limits.ts';
import type { Problem } from '../../src/runtime/problems/problem.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { createMetrics, renderMetrics } from '../../src/runtime/metrics.ts';
import { send, type Answer, type Call, type Credentials } from './export-area.ts';
import { testFolder } from './folder.ts';

/** The api port with the console and one method of the API, which returns the caller. */
export interface ConsoleServer {
  readonly dataDir: string;
  readonly keysDir: string;
  readonly keyProblems: () => readonly Problem[];
  readonly port: number;
  readonly sessions: Sessions;
  /** Returns the number of accepted calls of the method. */
  readonly calls: () => number;
  /** Returns the stored password of a user, as the server knows it now. */
  readonly findPasswordHash: (idUser: string) => string | undefined;
  /** Returns the number of sign-ins with an outcome, by the metrics. */
  readonly signIns: (outcome: string) => Promise<number>;
  /** The service's time, Unix milliseconds. */
  now: number;
  /** Ann, of account 7, Ben and Cem, of account 1, and Olga, an operator. */
  readonly users: Readonly<Record<'ann' | 'ben' | 'cem' | 'olga', Credentials>>;
  /** Opens the sign-outs as another process does. */
  openEnds(): Promise<SessionEnds>;
  ask(target: string, call?: Call): Promise<Answer>;
  signIn(user: Credentials, headers?: Readonly<Record<string, string>>): Promise<Answer>;
  /** Signs in, and returns the headers of a page's requests. */
  headersOf(user: Credentials): Promise<Readonly<Record<string, string>>>;
}

/** The method of the API. */
export const echo = '/api/echo/v1/get.json';

/** Returns the cookies that a response sets. */
export function cookiesOf({ headers }: Answer): readonly string[] {
  return [headers['set-cookie'] ?? []].flat();
}

/** Returns the session cookie that a response sets, as a browser sends it back. */
export function cookieOf(answer: Answer): string {
  return cookiesOf(answer)[0]?.split(';')[0] ?? '';
}

/** Returns the cookie that identifies a known browser, as a browser sends it back. */
export function browserCookieOf(answer: Answer): string {
  return cookiesOf(answer)[1]?.split(';')[0] ?? '';
}

interface ConsoleServerOptions {
  readonly publicUrl?: string;
  readonly quotaUser?: readonly Quota[];
  readonly hasClientAddresses?: boolean;
  /** Folder of the built pages, below the package; by default that of `make build`. */
  readonly pages?: string;
  /** Initial content of the session key's file. */
  readonly sessionKey?: string;
}

type Users = ConsoleServer['users'];
/** Users of the first server and their files: adding users takes most of the start. */
let added: { readonly users: Users; readonly files: ReadonlyMap<string, Buffer> } | undefined;

async function addUsers(dataDir: string): Promise<Users> {
  if (added === undefined) {
    const paths = dataPaths(dataDir);
    const users = {
      ann: await addUser(paths, { name: 'Ann', idAccount: 7, canExport: true }),
      ben: await addUser(paths, { name: 'Ben', idAccount: 1, canExport: true }),
      cem: await addUser(paths, { name: 'Cem', idAccount: 1, canExport: true }),
      olga: await addUser(paths, { name: 'Olga', idAccount: 1, canExport: true, operator: true }),
    };
    const names = readdirSync(dataDir, { recursive: true, encoding: 'utf8' });
    const files = names.filter((name) => statSync(path.join(dataDir, name)).isFile());
    added = { users, files: new Map(files.map((name) => [name, readFileSync(path.join(dataDir, name))])) };
  } else {
    for (const [name, bytes] of added.files) {
      mkdirSync(path.dirname(path.join(dataDir, name)), { recursive: true, mode: 0o700 });
      writeFileSync(path.join(dataDir, name), bytes, { mode: 0o600 });
    }
  }
  return added.users;
}

export async function startConsoleServer(options: ConsoleServerOptions = {}): Promise<ConsoleServer> {
  const { publicUrl, quotaUser = [], pages, hasClientAddresses = true, sessionKey } = options;
  const dataDir = testFolder();
  const paths = dataPaths(dataDir);
  const logger = createLogger('silent');
  // Before the start: a running service needs some time to load a new user.
  const users = await addUsers(dataDir);
  const access = await openAccessReader(paths, logger);
  if (sessionKey !== undefined) writeFileSync(path.join(paths.keys, 'sessions.key'), sessionKey);
  const key = await openSessionKey(paths.keys, logger);
  const clock = { nowMs: () => started.now };
  const nowSeconds = (): number => Math.floor(started.now / 1000);
  const openEnds = async (): Promise<SessionEnds> => {
    const opened = await openSessionEnds(paths.keys, logger, { nowSeconds, longestSeconds: maxSessionSeconds });
    onTestFinished(() => opened.close());
    return opened;
  };
  const ends = await openEnds();
  const sessions = createSessions({ key, access, clock, ends }, publicUrl?.startsWith('https:') === true);
  const server = createApiServer(defaultApiServerLimits, logger);
  let calls = 0;
  const quotas = createQuotas({ quotaUser, quotaIp: [] });
  const audit = openAuditLog({ folder: paths.audit, keepDays: 1 }, { clock, logger });
  const ofMethods = { access, quotas, sessions, audit, onAnswer: () => undefined };
  const addMethod = createAddMethod(server, ofMethods, { publicUrl, hasClientAddresses });
  addMethod(['GET', 'POST'], echo, 'echo', (user) => {
    calls += 1;
    return { data: { idUser: user.idUser, idAccount: user.idAccount } };
  });
  const told = { version: '1.2.3', timezone: 'Europe/Moscow' };
  const metrics = createMetrics();
  const guard = createSignInGuard({ metrics, logger }, hasClientAddresses);
  const browsers = createRememberedBrowsers(key);
  const store = async (idUser: string, password: string) =>
    (await setPassword(paths, Number(idUser), password)).passwordHash;
  addSessionRoutes(
    server,
    { access, sessions, browsers, guard, audit, setPassword: store, isReady: () => key.isReadable() },
    { publicUrl, hasClientAddresses, ...told },
  );
  addPageRoutes(server, openPageFiles(pages), describeExportForm);
  await server.listen({ host: '127.0.0.1', port: 0 });
  const address = server.server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  onTestFinished(async () => {
    await server.close();
    await audit.stop();
    key.close();
    access.close();
  });
  const signIn = ({ idUser, secret }: Credentials, headers: Readonly<Record<string, string>> = {}) =>
    send(port, '/console/session', { method: 'POST', headers, body: JSON.stringify({ idUser, secret }) });
  const started: ConsoleServer = {
    dataDir,
    keysDir: paths.keys,
    keyProblems: () => key.problems(),
    port,
    sessions,
    calls: () => calls,
    findPasswordHash: (idUser) => access.current().findUser(idUser)?.passwordHash,
    async signIns(outcome) {
      const { body } = await renderMetrics([await metrics.snapshot()]);
      return Number(new RegExp(`^tributary_console_sign_ins_total{outcome="${outcome}"} (\\d+)$`, 'm').exec(body)?.[1]);
    },
    now: Date.now(),
    users,
    openEnds,
    ask: (target, call) => send(port, target, call),
    signIn,
    async headersOf(user) {
      const answer = await signIn(user);
      const { csrfToken = '' } = (answer.json?.data ?? {}) as { readonly csrfToken?: string };
      return { cookie: cookieOf(answer), 'x-csrf-token': csrfToken };
    },
  };
  return started;
}
