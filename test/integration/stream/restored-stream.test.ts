import { cpSync, rmSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { StreamFaultRecord } from '../../../src/compact/compact-status.ts';
import { ensureLakeId, findFollowedStream } from '../../../src/lake/identity.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openPublisher } from '../../../src/stream/publisher.ts';
import { openReader } from '../../../src/stream/reader.ts';
import { streamName, type StreamPublisher, type StreamReader } from '../../../src/stream/stream.ts';
import { ensureStream } from '../../../src/stream/stream-admin.ts';
import { backUp, expectEvents, restore } from '../../helpers/backup.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { startTestNats, type TestNats } from '../../helpers/nats.ts';
import { claimFor, enterFor, operatorOf } from '../../helpers/owned-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

/** Publishes a message of one event; returns its id. */
async function publishOne(publisher: StreamPublisher): Promise<string> {
  const line = eventLine();
  await publisher.publish(Buffer.from(`${JSON.stringify(line)}\n`), 5000);
  return String(line['event_id']);
}

/** Lets a compactor of a folder commit all messages of the stream; returns the faults that it reported. */
async function takeInFrom(reader: StreamReader, folder: string): Promise<string[]> {
  const compactor = await startTestCompact(folder, reader);
  await waitFor('everything is committed', async () => {
    const [{ lake }, state] = [await readSnapshot(lakePaths(path.join(folder, 'lake')).table), await reader.state()];
    return lake?.epoch?.streamId === state.id && lake.epoch.position === state.lastSequence && state.messages <= 1;
  });
  const faults = (compactor.facts()['streamFaults'] as readonly StreamFaultRecord[]).map(({ fault }) => fault);
  await compactor.stop();
  return faults;
}

/** A lake restored from a backup next to the stream of an external broker, which has continued. */
interface Scene {
  readonly nats: TestNats;
  readonly original: string;
  readonly copy: string;
  /** Publishes messages of an event each; returns their ids. */
  readonly publish: (messages: number) => Promise<string[]>;
  /** Lets the compactor of a folder commit all messages of the stream; returns the faults that it reported. */
  readonly takeIn: (folder: string) => Promise<string[]>;
  /**
   * Keeps the broker's store as it is now; the function puts it back, as an operator does who restores it from a copy.
   */
  readonly putBack: () => Promise<() => Promise<void>>;
  backUp(): Promise<void>;
  restore(): Promise<void>;
}

async function createScene(): Promise<Scene> {
  const root = testFolder();
  const nats = await startTestNats();
  onTestFinished(() => nats.stop());
  let publisher = openPublisher(await nats.connect());
  const [original, copy, dir] = ['original', 'copy', 'backup'].map((name) => path.join(root, name)) as [
    string,
    string,
    string,
  ];
  return {
    nats,
    original,
    copy,
    async publish(messages) {
      const ids: string[] = [];
      for (let n = 0; n < messages; n += 1) ids.push(await publishOne(publisher));
      return ids;
    },
    takeIn: async (folder) => takeInFrom(await openReader(await nats.connect()), folder),
    async putBack() {
      const [store, kept] = [path.join(nats.folder, 'store'), path.join(root, 'store')];
      await nats.kill();
      cpSync(store, kept, { recursive: true });
      await nats.restart();
      publisher = openPublisher(await nats.connect());
      return async () => {
        await nats.kill();
        rmSync(store, { recursive: true });
        cpSync(kept, store, { recursive: true });
        await nats.restart();
        publisher = openPublisher(await nats.connect());
      };
    },
    backUp: async () => void (await backUp(original, dir, async () => openReader(await nats.connect()))),
    restore: async () => void (await restore(dir, copy)),
  };
}

describe('a restored lake', () => {
  it('A restored lake continues with the stream that it was backed up with, exactly where the backup ends, without an alarm', async () => {
    const { original, copy, publish, takeIn, ...scene } = await createScene();
    const ids = await publish(3);
    await takeIn(original);
    ids.push(...(await publish(2)));
    await scene.backUp();
    ids.push(...(await publish(2)));
    await scene.restore();
    expect(await takeIn(copy)).toEqual([]);
    await expectEvents(copy, ids);
  });

  it('A restored lake with a stream on which the original has continued reports the gap, and loses nothing that is in either', async () => {
    const { original, copy, publish, takeIn, ...scene } = await createScene();
    const ids = await publish(3);
    await takeIn(original);
    ids.push(...(await publish(2)));
    await scene.backUp();
    // committed by the original and purged: only its own folder has them
    const elsewhere = await publish(3);
    await takeIn(original);
    // the last message stays in the stream, as the anchor
    ids.push(...elsewhere.slice(-1), ...(await publish(2)));
    await scene.restore();
    expect(await takeIn(copy)).toEqual(['gap']);
    await expectEvents(copy, ids);
  });

  it('A restored lake with a stream that was recreated reports it, and stores no event twice', async () => {
    const { nats, original, copy, publish, takeIn, ...scene } = await createScene();
    const ids = await publish(3);
    await takeIn(original);
    ids.push(...(await publish(2)));
    await scene.backUp();
    await scene.restore();
    const operator = await operatorOf(nats);
    await operator.streams.delete(streamName);
    await ensureStream(await nats.connect(), { maxBytes: 2 ** 22 });
    ids.push(...(await publish(1)));
    expect(await takeIn(copy)).toEqual(['restored']);
    await expectEvents(copy, ids);
    // reported once: from here on it is a stream like any other
    await operator.streams.delete(streamName);
    await ensureStream(await nats.connect(), { maxBytes: 2 ** 22 });
    ids.push(...(await publish(1)));
    expect(await takeIn(copy)).toEqual(['recreated']);
    await expectEvents(copy, ids);
  });

  const losses = [
    ['ends before the backup does', 1, 'shortened'],
    ['has used the numbers again', 3, 'replaced'],
  ] as const;

  it.each(inTurn(losses, 2))(
    'A restored lake with an older stream that has lost its end and %s reports it, and has the events of either once',
    async (_, later, fault) => {
      const { nats, original, copy, publish, takeIn, putBack, ...scene } = await createScene();
      const ids = await publish(3);
      await takeIn(original);
      const putStoreBack = await putBack();
      ids.push(...(await publish(2)));
      await scene.backUp();
      await scene.restore();
      await putStoreBack();
      const { id, lastSequence } = await (await openReader(await nats.connect())).state();
      expect(lastSequence).toBe(3);
      ids.push(...(await publish(later)));
      expect(await takeIn(copy)).toEqual([fault]);
      await expectEvents(copy, ids);
      // the same stream under sequences of another epoch: it continues, and the alarm was reported once
      const { lake } = await readSnapshot(lakePaths(path.join(copy, 'lake')).table);
      expect(lake?.epoch).toMatchObject({ appId: `${id}#2`, streamId: id, position: 3 + later });
      ids.push(...(await publish(2)));
      expect(await takeIn(copy)).toEqual([]);
      await expectEvents(copy, ids);
    },
  );
});

describe('a restored folder next to its running original, on one broker', () => {
  it('A restored folder next to its running original on one broker is refused the stream with the setting to change and reads nothing of it, and with its own stream both run', async () => {
    const nats = await startTestNats({ streamMaxBytes: 'none' });
    onTestFinished(() => nats.stop());
    const operator = await operatorOf(nats);
    const root = testFolder();
    const [original, copy, dir] = ['original', 'copy', 'backup'].map((name) => path.join(root, name)) as [
      string,
      string,
      string,
    ];
    /** Claims a stream as the supervisor of a folder does; returns what its import and its compactor have of it. */
    const enter = async (folder: string, stream: string) => {
      const lakeDir = path.join(folder, 'lake');
      await claimFor(nats, folder, {
        streamName: stream,
        lake: { id: await ensureLakeId(lakeDir), findStreamId: () => findFollowedStream(lakeDir) },
      });
      const { guard, publisher } = await enterFor(nats, folder, stream);
      return { publisher, reader: await openReader(await nats.connect(), { streamName: stream, guard }) };
    };

    const one = await enter(original, 'SHARED');
    const ids = [await publishOne(one.publisher)];
    await takeInFrom(one.reader, original);
    ids.push(await publishOne(one.publisher));
    await backUp(original, dir, one.reader);
    await restore(dir, copy);
    const before = await operator.streams.info('SHARED');

    await expect(enter(copy, 'SHARED')).rejects.toMatchObject({
      code: 'stream_taken',
      message: expect.stringMatching(new RegExp(`${original} .*pid \\d+.*${copy} `)) as string,
      hint: expect.stringContaining('set another TRIBUTARY_STREAM') as string,
    });
    // nor does what works on its folder without asking
    const { guard, publisher } = await enterFor(nats, copy, 'SHARED');
    await expect(publisher.publish(Buffer.from('x'), 2000)).rejects.toMatchObject({ code: 'stream_shut' });
    await expect(
      (await openReader(await nats.connect(), { streamName: 'SHARED', guard })).state(),
    ).rejects.toMatchObject({ code: 'stream_shut' });
    const { config, state } = await operator.streams.info('SHARED');
    expect({ config, state }).toEqual({ config: before.config, state: before.state });

    const other = await enter(copy, 'SHARED_TOO');
    const [own, later] = [await publishOne(other.publisher), await publishOne(one.publisher)];
    // what the original takes after the backup is in its own lake alone: the restored one says so
    expect(await takeInFrom(other.reader, copy)).toEqual(['restored']);
    expect(await takeInFrom(one.reader, original)).toEqual([]);
    await expectEvents(copy, [...ids, own]);
    await expectEvents(original, [...ids, later]);
  });
});
