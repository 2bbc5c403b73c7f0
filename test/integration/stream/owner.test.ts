import { cpSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { JetStreamManager } from '@nats-io/jetstream';
import { describe, expect, it } from 'vitest';
import { isAppError } from '../../../src/runtime/errors.ts';
import { findKeptClaim } from '../../../src/stream/claim.ts';
import { openReader } from '../../../src/stream/reader.ts';
import { testFolder } from '../../helpers/folder.ts';
import type { TestNats } from '../../helpers/nats.ts';
import { claimFor, enterFor, prepareOperatedBroker } from '../../helpers/owned-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

/** A second owner, in every way in which one comes to be. */

let nats: TestNats;
let operator: JetStreamManager;
prepareOperatedBroker((broker, manager) => {
  nats = broker;
  operator = manager;
});

const lake = (id: string, followed?: string) => ({ id, findStreamId: () => Promise.resolve(followed) });
const subjectsOf = async (): Promise<string[]> => (await operator.streams.info('SHARED')).config.subjects;
const copyOf = (folder: string): string => {
  const copy = path.join(testFolder(), 'copy');
  cpSync(folder, copy, { recursive: true });
  return copy;
};

describe('a stream', () => {
  it('A stream that belongs to another lake is refused, naming both, whether its owner runs or not', async () => {
    const [first, second] = [testFolder(), testFolder()];
    const owner = await claimFor(nats, first);
    const refused = {
      code: 'stream_taken',
      message: expect.stringMatching(new RegExp(`lake-1 of ${first}.*lake-2 of ${second}`)) as string,
      hint: expect.stringContaining('TRIBUTARY_STREAM') as string,
    };
    await expect(claimFor(nats, second, { lake: lake('lake-2') })).rejects.toMatchObject(refused);
    await owner.stop();
    await expect(claimFor(nats, second, { lake: lake('lake-2') })).rejects.toMatchObject(refused);
    await expect(
      claimFor(nats, second, { lake: lake('lake-2', 'SHARED@once'), exclusive: true }),
    ).rejects.toMatchObject(refused);
  });

  it('Streams of different names on one cluster each belong to their own service', async () => {
    const [first, second] = [testFolder(), testFolder()];
    await claimFor(nats, first, { streamName: 'SHARED' });
    await claimFor(nats, second, { streamName: 'SHARED_TOO', lake: lake('lake-2') });
    const [one, two] = [await enterFor(nats, first, 'SHARED'), await enterFor(nats, second, 'SHARED_TOO')];
    expect(await one.publisher.publish(Buffer.from('1'), 2000)).toMatchObject({ stream: 'SHARED', sequence: 1 });
    expect(await two.publisher.publish(Buffer.from('2'), 2000)).toMatchObject({ stream: 'SHARED_TOO', sequence: 1 });
  });

  it('A stream without a claim is adopted by the lake that has read it, and by a new lake while it is empty', async () => {
    const { created } = await operator.streams.add({ name: 'SHARED', subjects: ['tributary.events'] });
    const empty = await claimFor(nats, testFolder(), { lake: lake('lake-1') });
    await empty.stop();
    await operator.streams.delete('SHARED');
    const old = await operator.streams.add({ name: 'SHARED', subjects: ['tributary.events'] });
    expect(old.created).not.toBe(created);
    await (await nats.connect()).nats.request('tributary.events', 'from before');
    const folder = testFolder();
    await claimFor(nats, folder, { lake: lake('lake-1', `SHARED@${old.created}`) });
    const { publisher } = await enterFor(nats, folder);
    expect(await publisher.publish(Buffer.from('next'), 2000)).toMatchObject({ sequence: 2 });
    expect((await operator.streams.info('SHARED')).state.messages).toBe(2);
  });

  it('A stream with messages and without a claim is not adopted until the operator names its owner', async () => {
    await operator.streams.add({ name: 'SHARED', subjects: ['tributary.events'] });
    await (await nats.connect()).nats.request('tributary.events', 'whose?');
    for (const followed of [undefined, 'SHARED@another-time']) {
      await expect(claimFor(nats, testFolder(), { lake: lake('lake-1', followed) })).rejects.toMatchObject({
        code: 'stream_taken',
        hint: expect.stringContaining('tributary.lake=lake-1') as string,
      });
    }
    await operator.streams.update('SHARED', { metadata: { 'tributary.lake': 'lake-1' } });
    await claimFor(nats, testFolder(), { lake: lake('lake-1') });
  });

  it('A stream is claimed again at once by the same data folder, under a claim that shuts out the remains of the earlier service', async () => {
    const folder = testFolder();
    await (await claimFor(nats, folder)).stop();
    const [before] = await subjectsOf();
    // With a lease that would outlast the test.
    await claimFor(nats, folder, { leaseMs: 600_000 });
    await expect((await nats.connect()).nats.request(before ?? '', 'late')).rejects.toThrow('no responders');
    const { publisher } = await enterFor(nats, folder);
    expect(await publisher.publish(Buffer.from('x'), 2000)).toMatchObject({ sequence: 1 });
  });

  it.each(['deleted', 'without its claim'])(
    'A stream that was %s while its owner was suspended no longer belongs to the former owner when a copy has claimed it',
    async (how) => {
      const folder = testFolder();
      const owner = await claimFor(nats, folder);
      const copy = copyOf(folder);
      const former = await enterFor(nats, folder);
      await owner.stop();
      const { created } = await operator.streams.info('SHARED');
      if (how === 'deleted') await operator.streams.delete('SHARED');
      else await operator.streams.update('SHARED', { metadata: {} });
      await claimFor(nats, copy, { lake: lake('lake-1', `SHARED@${created}`) });
      await waitFor('the former owner says so', () => former.guard.problems()[0]?.message.includes(copy) === true);
      await expect(former.publisher.publish(Buffer.from('x'), 2000)).rejects.toMatchObject({ code: 'stream_shut' });
    },
  );

  it('A stream is shared by the processes of one data folder', async () => {
    const folder = testFolder();
    await claimFor(nats, folder);
    const subjects = await subjectsOf();
    await claimFor(nats, folder, { leaseMs: 600_000 });
    expect(await subjectsOf()).toEqual(subjects);
  });

  it('A stream is refused to a copy of the data folder while its owner answers, naming both', async () => {
    const folder = testFolder();
    await claimFor(nats, folder);
    const copy = copyOf(folder);
    await expect(claimFor(nats, copy)).rejects.toMatchObject({
      code: 'stream_taken',
      message: expect.stringMatching(new RegExp(`${folder} .*pid \\d+.*${copy} `)) as string,
    });
    const { publisher } = await enterFor(nats, folder);
    expect(await publisher.publish(Buffer.from('x'), 2000)).toMatchObject({ sequence: 1 });
  });

  it('A stream is taken over by a copy when its owner is silent for the lease, and the former owner can neither publish nor read', async () => {
    const folder = testFolder();
    const owner = await claimFor(nats, folder);
    const copy = copyOf(folder);
    const former = await enterFor(nats, folder);
    const connection = await nats.connect();
    const formerReader = await openReader(connection, { streamName: 'SHARED', guard: former.guard });
    await former.publisher.publish(Buffer.from('1'), 2000);
    const [formerSubject] = await subjectsOf();
    await owner.stop();
    await claimFor(nats, copy);
    // Messages of a process that was suspended meanwhile: the broker itself rejects them, without a check or a clock.
    await expect(connection.nats.request(formerSubject ?? '', 'late')).rejects.toThrow('no responders');
    await expect(former.publisher.publish(Buffer.from('2'), 2000)).rejects.toSatisfy(
      (error: unknown) => isAppError(error, 'stream_shut') || isAppError(error, 'broker_away'),
    );
    await expect(formerReader.state()).rejects.toMatchObject({
      code: 'stream_shut',
      message: expect.stringContaining(copy) as string,
    });
    await waitFor('the former owner says so', () => former.guard.problems().length === 1);
    expect(former.guard.problems()[0]?.message).toContain(copy);
    const { publisher } = await enterFor(nats, copy);
    expect(await publisher.publish(Buffer.from('2'), 2000)).toMatchObject({ sequence: 2 });
  });

  it('A stream is not returned automatically: a former owner that still runs reports it, and its next start asks first', async () => {
    const folder = testFolder();
    const before = await claimFor(nats, folder);
    const copy = copyOf(folder);
    await before.stop();
    const owner = await claimFor(nats, copy);
    await expect(claimFor(nats, folder)).rejects.toMatchObject({ code: 'stream_taken' });
    await owner.stop();
    const back = await claimFor(nats, folder);
    const { publisher } = await enterFor(nats, folder);
    expect(await publisher.publish(Buffer.from('x'), 2000)).toMatchObject({ sequence: 1 });
    expect(back.problems()).toEqual([]);
  });

  it('A stream that two copies claim at the same moment has one owner, and the other accepts nothing', async () => {
    const folder = testFolder();
    await (await claimFor(nats, folder)).stop();
    const copies = [copyOf(folder), copyOf(copyOf(folder))];
    const claims = await Promise.allSettled(copies.map((copy) => claimFor(nats, copy)));
    expect(claims.some(({ status }) => status === 'fulfilled')).toBe(true);
    const guards = await Promise.all(copies.map((copy) => enterFor(nats, copy)));
    const outcomes = await Promise.all(
      guards.map(({ publisher }) =>
        publisher.publish(Buffer.from('x'), 2000).then(
          () => true,
          () => false,
        ),
      ),
    );
    expect(outcomes.filter(Boolean)).toHaveLength(1);
  });
});

it('A claim that is unreadable for a moment is not lost: no process creates another', async () => {
  const folder = testFolder();
  const file = path.join(folder, 'stream-claim.json');
  expect(await findKeptClaim(file)).toBeUndefined();
  mkdirSync(file);
  await expect(findKeptClaim(file)).rejects.toMatchObject({ code: 'disk' });
  rmdirSync(file);
  writeFileSync(file, 'damaged');
  expect(await findKeptClaim(file)).toBeUndefined();
});
