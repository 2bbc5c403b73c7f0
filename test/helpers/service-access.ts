import { expect, onTestFinished } from 'vitest';
import { addApp } from '../../src/access/apps.ts';
import { addUser } from '../../src/access/users.ts';
import { dataPaths } from '../../src/config.ts';
import type { Credentials } from './export-area.ts';
import { runCommand, startTestService, type TestService, type TestServiceOptions } from './service.ts';
import { waitFor } from './wait.ts';

/**
 * A service with the access of its clients: an app, whose token sends events, and a user, who creates exports. Both are
 * added before the start, because a running service may take a second to load a new app, and rejects its events until
 * then. The code of the program's commands adds them in the tests' process, to save the start of a program. If the
 * program is not that of the sources, its own commands run.
 */

/** A running service, and the token of its app 1. */
export interface ServiceWithApp {
  readonly service: TestService;
  readonly token: string;
}

/** The same with a user of account 1, to which the app belongs. */
export interface ServiceWithUser extends ServiceWithApp {
  readonly user: Credentials;
}

/**
 * Adds an app of platform web to a data folder, which is created if it is missing; returns the token. `program`: its
 * entry.
 */
export async function addTestApp(dataDir: string, idApp = '1', program?: string): Promise<string> {
  if (program === undefined) {
    const app = { idApp: Number(idApp), platform: 'web', idAccount: 1 } as const;
    return (await addApp(dataPaths(dataDir), app, Date.now())).token;
  }
  const { token } = await runCommand(['app', 'add', idApp, '--platform', 'web', '--data', dataDir], {}, program);
  return String(token);
}

/**
 * Adds a user of account 1, who may export, to a data folder, which is created if it is missing. `program`: its entry.
 */
export async function addTestUser(dataDir: string, program?: string): Promise<Credentials> {
  if (program === undefined) {
    const user = { name: 'analyst', idAccount: 1, canExport: true };
    return addUser(dataPaths(dataDir), user);
  }
  const words = ['user', 'add', 'analyst', '--account', '1', '--data', dataDir];
  const { idUser, secret } = await runCommand(words, {}, program);
  return { idUser: String(idUser), secret: String(secret) };
}

/** Adds app 1 and starts the service; the end of the running test ends it. */
export async function startWithApp(options: TestServiceOptions): Promise<ServiceWithApp> {
  const token = await addTestApp(options.dataDir);
  return { service: await startForTest(options), token };
}

/** Adds app 1 and a user and starts the service; the end of the running test ends it. */
export async function startWithUser(options: TestServiceOptions): Promise<ServiceWithUser> {
  const token = await addTestApp(options.dataDir);
  const user = await addTestUser(options.dataDir);
  return { service: await startForTest(options), token, user };
}

async function startForTest(options: TestServiceOptions): Promise<TestService> {
  const service = await startTestService(options);
  onTestFinished(() => service.destroy());
  return service;
}

/** Sends an event of each user to the import area of a service. */
export async function sendEvents({ s2s }: TestService, token: string, users: readonly string[]): Promise<void> {
  for (const customUserId of users) {
    const body = JSON.stringify({ customUserId, customEventName: 'level' });
    const call = { method: 'POST', headers: { authorization: token }, body };
    expect((await fetch(`${s2s}/v1/customEvent/?idApp=1`, call)).status).toBe(200);
  }
}

/**
 * Waits until the lake has some rows. The service must have no problem. Returns the codes of its warnings. The
 * credentials of a bucket must be shared with the tests' process.
 */
export async function waitForRows(service: TestService, rows: number): Promise<readonly string[]> {
  await waitFor(
    `the lake has ${rows} rows`,
    async () => {
      const { lake, problems } = await service.status();
      expect(problems).toEqual([]);
      return (lake as { readonly rows: number }).rows === rows;
    },
    60_000,
  );
  // The command fails if there is a problem.
  const { warnings } = await service.command('status');
  return (warnings as readonly { readonly code: string }[]).map(({ code }) => code);
}
