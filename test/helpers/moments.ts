import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Random } from '../../src/demo/random.ts';
import type { AnswerData } from './export-area.ts';
import { exportQuery, type ExportClient } from './export-client.ts';
import { sendRaw } from './http.ts';
import type { TestService } from './service.ts';
import { waitFor } from './wait.ts';

/** A moment at which the power is cut: right after a response, or during work. */
export interface Moment {
  readonly name: string;
  /**
   * Waits for the moment; returns the check that promises made before the cut still hold. `cut` is the number of the
   * cut.
   */
  reach(cut: number): Promise<() => Promise<void>>;
}

export interface MomentDependencies {
  readonly service: TestService;
  readonly client: ExportClient;
  readonly random: Random;
  /** Returns the number of events acknowledged so far. */
  readonly acknowledged: () => number;
  /** Ids of the acknowledged export requests; new ones are added. */
  readonly requests: string[];
}

const longestWaitMs = 1500;
const firstApp = 1000;
const nothingMore = async (): Promise<void> => undefined;

/** Waits until a folder's entries change. */
async function waitForChange(folder: string): Promise<void> {
  const list = (): string => (existsSync(folder) ? readdirSync(folder).join() : '');
  const before = list();
  // a late seal must not fail the test: then the cut comes at a random moment
  await waitFor(`${folder} changes`, () => list() !== before, longestWaitMs).catch(() => undefined);
}

function filesOf(data: AnswerData | undefined): unknown {
  return data?.files?.map(({ rows, bytes, sha256 }) => ({ rows, bytes, sha256 }));
}

/** Creates the moments of a service under load. */
export function createMoments({
  service,
  client,
  random,
  acknowledged,
  requests,
}: MomentDependencies): readonly [Moment, ...Moment[]] {
  const query = exportQuery('eventId,eventName');
  const createExport = async (): Promise<string> => {
    const id = await client.create(query);
    if (id === undefined) throw new Error('the export area did not answer');
    requests.push(id);
    return id;
  };
  const duringChangesOf =
    (...folders: readonly string[]) =>
    async () => {
      await waitForChange(path.join(service.dataDir, 'lake', ...folders));
      return nothingMore;
    };
  return [
    {
      name: 'any time',
      async reach() {
        await pass(random.integer(0, longestWaitMs));
        return nothingMore;
      },
    },
    {
      name: 'an event is acknowledged',
      async reach() {
        const before = acknowledged();
        await waitFor('an event is acknowledged', () => acknowledged() > before);
        return nothingMore;
      },
    },
    { name: 'a flush writes its file', reach: duringChangesOf('events', '_young') },
    { name: 'a commit, or a checkpoint, is in the log', reach: duringChangesOf('events', '_delta_log') },
    { name: 'a seal stages its files', reach: duringChangesOf('staging') },
    {
      name: 'an app is added',
      async reach(cut) {
        const idApp = firstApp + cut;
        const { token } = await service.command('app', 'add', String(idApp), '--platform', 'web');
        return async () => {
          // an empty body is rejected with 400, an unknown token with 403
          const answer = await sendRaw(Number(new URL(service.s2s).port), {
            verb: 'POST',
            path: `/v1/login/?idApp=${idApp}`,
            headers: { authorization: String(token) },
            body: Buffer.from(''),
          });
          expect(answer.status, `app ${idApp} is known`).toBe(400);
        };
      },
    },
    {
      name: 'the key of the links is rotated',
      async reach() {
        const { kid } = await service.command('key', 'rotate');
        return async () => expect((await service.command('key', 'rotate'))['retired'], 'the new key').toContain(kid);
      },
    },
    {
      name: 'an export is created',
      async reach() {
        const id = await createExport();
        return async () => expect(await client.find(id), `export ${id}`).toBeDefined();
      },
    },
    {
      name: 'an export has its result',
      async reach() {
        const id = await createExport();
        const told = await client.waitForEnd(id);
        expect(told.status).toBe('Success!');
        return async () => {
          const found = await client.find(id);
          expect(filesOf(found), `files of export ${id}`).toEqual(filesOf(told));
          await client.download(found ?? {});
        };
      },
    },
  ];
}
