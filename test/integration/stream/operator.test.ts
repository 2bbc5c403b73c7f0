import { jetstreamManager, type JetStreamManager, type StreamConfig } from '@nats-io/jetstream';
import { beforeEach, describe, expect, it } from 'vitest';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { claimFor, enterFor, findLost, prepareOperatedBroker, startPublishing } from '../../helpers/owned-stream.ts';
import { testFolder } from '../../helpers/folder.ts';
import type { TestNats } from '../../helpers/nats.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

/** A stream changed by its operator while events are published. */

let nats: TestNats;
let operator: JetStreamManager;
prepareOperatedBroker((broker, manager) => {
  nats = broker;
  operator = manager;
});

let streams = 0;
/** A name that no other test uses: a setting such as `sealed` makes its stream unusable. */
function nextName(): string {
  streams += 1;
  return `CHANGED_${streams}`;
}

const unsafe: readonly (readonly [string, Partial<StreamConfig>])[] = [
  ['discard', { discard: 'old' }],
  ['max_age', { max_age: 100_000_000, duplicate_window: 100_000_000 }],
  ['retention', { retention: 'interest' }],
  ['max_msgs', { max_msgs: 3, discard: 'old' }],
  ['max_msgs_per_subject', { max_msgs_per_subject: 2, discard: 'old' }],
  ['discard_new_per_subject', { discard_new_per_subject: true, max_msgs_per_subject: 1_000_000 }],
  ['no_ack', { no_ack: true }],
  ['allow_rollup_hdrs', { allow_rollup_hdrs: true }],
  ['sources', { sources: [{ name: 'ELSEWHERE' }] }],
  ['subject_transform', { subject_transform: { src: '>', dest: 'hidden.>' } }],
  ['subjects', { subjects: ['another.subject'] }],
];
const lasting: readonly (readonly [string, Partial<StreamConfig>])[] = [
  ['deny_purge', { deny_purge: true }],
  ['sealed', { sealed: true, discard: 'new' }],
];

describe('a stream changed by its operator', () => {
  it.each([...unsafe, ...lasting])(
    'Import accepts no event while %s is unsafe, and reports which setting it is',
    async (setting, change) => {
      const [stream, folder] = [nextName(), testFolder()];
      // The owner, which would repair it, is away.
      await (await claimFor(nats, folder, { streamName: stream })).stop();
      const { guard, publisher } = await enterFor(nats, folder, stream);
      const publishing = startPublishing(publisher, stream);
      await waitFor('events are taken', () => publishing.acknowledged.size > 20);
      const { state } = await operator.streams.update(stream, change);
      await waitFor('the import stops', () => publishing.refusal === 'stream_shut');
      expect(guard.problems()).toMatchObject([{ message: expect.stringContaining(`${setting} is `) as string }]);
      const told = publishing.acknowledged.size;
      await waitFor(
        'it is looked at again',
        async () => publishing.refusal === 'stream_shut' && (await publisher.ping(1000).then(() => true)),
      );
      await publishing.stop();
      // What the change itself removed is the operator's doing; nothing was acknowledged on it.
      expect(publishing.acknowledged.size).toBe(told);
      expect([...publishing.acknowledged.keys()].filter((sequence) => sequence > state.last_seq)).toEqual([]);
    },
  );

  it.each(unsafe)(
    'A stream whose %s was changed is restored, with a notice, and loses nothing acknowledged after the change',
    async (setting, change) => {
      const [stream, folder] = [nextName(), testFolder()];
      const owner = await claimFor(nats, folder, { streamName: stream });
      const { guard, publisher } = await enterFor(nats, folder, stream);
      const publishing = startPublishing(publisher, stream);
      await waitFor('events are taken', () => publishing.acknowledged.size > 20);
      const { state } = await operator.streams.update(stream, change);
      await waitFor('it is repaired', () => owner.notices().length > 0);
      const before = publishing.acknowledged.size;
      await waitFor('events are taken again', () => publishing.acknowledged.size > before + 50);
      await publishing.stop();
      expect(owner.notices()).toMatchObject([{ message: expect.stringContaining(`${setting} is `) as string }]);
      expect([...owner.problems(), ...guard.problems()]).toEqual([]);
      expect(await findLost(operator, stream, publishing, state.last_seq)).toEqual([]);
    },
  );

  it('A deleted stream is recreated at once, with its settings, its claim and what the operator gave it', async () => {
    const [stream, folder] = [nextName(), testFolder()];
    const owner = await claimFor(nats, folder, { streamName: stream });
    const { guard, publisher } = await enterFor(nats, folder, stream);
    await operator.streams.update(stream, { description: 'events of the shop', metadata: { team: 'shop' } });
    await waitFor('the claim is put back', () => owner.notices().length === 1);
    const { config } = await operator.streams.info(stream);
    const publishing = startPublishing(publisher, stream);
    await waitFor('events are taken', () => publishing.acknowledged.size > 20);
    await operator.streams.delete(stream);
    await waitFor('it is recreated', () => owner.notices().length === 2);
    const before = publishing.acknowledged.size;
    await waitFor('events are taken again', () => publishing.acknowledged.size > before + 20);
    await publishing.stop();
    const anew = await operator.streams.info(stream);
    expect(anew.config).toEqual(config);
    expect(anew.config.metadata).toMatchObject({ team: 'shop', 'tributary.lake': 'lake-1' });
    expect([...owner.problems(), ...guard.problems()]).toEqual([]);
  });

  it('A stream whose older state is restored gets its current claim back', async () => {
    const [stream, folder] = [nextName(), testFolder()];
    await (await claimFor(nats, folder, { streamName: stream })).stop();
    const older = (await operator.streams.info(stream)).config;
    // Another place: a take-over, and so the next generation.
    const owner = await claimFor(nats, folder, {
      streamName: stream,
      place: { host: 'h', folder, fingerprint: 'moved' },
    });
    const { publisher } = await enterFor(nats, folder, stream);
    const newer = (await operator.streams.info(stream)).config;
    expect(newer.subjects).not.toEqual(older.subjects);
    // The service may be recreating it at that moment.
    await waitFor('the older state is there', async () => {
      await operator.streams.delete(stream).catch(() => undefined);
      return operator.streams.add(older).then(
        () => true,
        () => false,
      );
    });
    await waitFor(
      'the claim is that of now',
      async () =>
        (await operator.streams.info(stream).catch(() => undefined))?.config.subjects[0] === newer.subjects[0],
    );
    await waitFor('events are taken', () =>
      publisher.publish(Buffer.from('x'), 1000).then(
        () => true,
        () => false,
      ),
    );
    expect(owner.problems()).toEqual([]);
  });

  it('A changed stream that the account may not change stops the import with a problem, until the operator has restored it', async () => {
    const [stream, folder] = [nextName(), testFolder()];
    const connection = await nats.connect();
    const manager = await jetstreamManager(connection.nats);
    await (await claimFor(nats, folder, { streamName: stream })).stop();
    const { guard, publisher } = await enterFor(nats, folder, stream);
    await manager.streams.update(stream, { max_age: 3_600_000_000_000 });
    await waitFor('the import stops', () => guard.problems().length === 1);
    await expect(publisher.publish(Buffer.from('x'), 1000)).rejects.toMatchObject({ code: 'stream_shut' });
    await manager.streams.update(stream, { max_age: 0 });
    await waitFor('the import continues', () =>
      publisher.publish(Buffer.from('x'), 1000).then(
        () => true,
        () => false,
      ),
    );
    expect(guard.problems()).toEqual([]);
  });
});
