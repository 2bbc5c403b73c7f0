import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { SeenFault } from '../../../src/compact/compact-facts.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/snapshot.ts';
import { openPublisher } from '../../../src/stream/publisher.ts';
import { openReader } from '../../../src/stream/reader.ts';
import { streamName } from '../../../src/stream/stream.ts';
import { ensureStream } from '../../../src/stream/topology.ts';
import { backUp, expectEvents, restore } from '../../helpers/backup.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { startTestNats, type TestNats } from '../../helpers/nats.ts';
import { operatorOf } from '../../helpers/owned-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

/** A lake that was restored from a backup beside the stream of an external broker, which has not stood still. */
interface Scene {
  readonly nats: TestNats;
  readonly original: string;
  readonly copy: string;
  /** Publishes messages of an event each; returns their ids. */
  readonly publish: (messages: number) => Promise<string[]>;
  /** Lets the compactor of a folder take in what the stream has; returns the faults that it reported. */
  readonly takeIn: (folder: string) => Promise<string[]>;
  backUp(): Promise<void>;
  restore(): Promise<void>;
}

async function createScene(): Promise<Scene> {
  const root = testFolder();
  const nats = await startTestNats();
  onTestFinished(() => nats.stop());
  const publisher = openPublisher(await nats.connect());
  const [original, copy, dir] = ['original', 'copy', 'backup'].map((name) => path.join(root, name)) as [string, string, string];
  return {
    nats,
    original,
    copy,
    async publish(messages) {
      const ids: string[] = [];
      for (let n = 0; n < messages; n += 1) {
        const line = eventLine();
        await publisher.publish(Buffer.from(`${JSON.stringify(line)}\n`), 5000);
        ids.push(String(line['event_id']));
      }
      return ids;
    },
    async takeIn(folder) {
      const reader = await openReader(await nats.connect());
      const compact = await startTestCompact(folder, reader);
      await waitFor('all is taken in', async () => {
        const [{ lake }, state] = [await readSnapshot(lakePaths(path.join(folder, 'lake')).table), await reader.state()];
        return lake?.epoch?.streamId === state.id && lake.epoch.position === state.lastSequence && state.messages <= 1;
      });
      const faults = (compact.facts()['streamFaults'] as readonly SeenFault[]).map(({ fault }) => fault);
      await compact.stop();
      return faults;
    },
    backUp: async () => void (await backUp(original, dir, async () => openReader(await nats.connect()))),
    restore: async () => void (await restore(dir, copy)),
  };
}

describe('a restored lake', () => {
  it('goes on with the stream that it was backed up with, from exactly where the backup ends, without an alarm', async () => {
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

  it('beside a stream from which the original has gone on taking reports the gap, and loses nothing that is in either', async () => {
    const { original, copy, publish, takeIn, ...scene } = await createScene();
    const ids = await publish(3);
    await takeIn(original);
    ids.push(...(await publish(2)));
    await scene.backUp();
    // taken in by the original and purged: only its own folder has them
    const elsewhere = await publish(3);
    await takeIn(original);
    // the last message stays in the stream, as the anchor
    ids.push(...elsewhere.slice(-1), ...(await publish(2)));
    await scene.restore();
    expect(await takeIn(copy)).toEqual(['gap']);
    await expectEvents(copy, ids);
  });

  it('beside an older stream, one that was made anew or has lost its end, reports it, and stores no event twice', async () => {
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
    // told once: from here on it is a stream like any other
    await operator.streams.delete(streamName);
    await ensureStream(await nats.connect(), { maxBytes: 2 ** 22 });
    ids.push(...(await publish(1)));
    expect(await takeIn(copy)).toEqual(['recreated']);
    await expectEvents(copy, ids);
  });
});
