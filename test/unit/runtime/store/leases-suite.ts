import { EventEmitter, once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { Leases } from '../../../../src/runtime/store/leases.ts';
import { within } from '../../../helpers/wait.ts';

/** Opens the leases of two processes in one new store, or skips the test. */
type Open = (skip: (note: string) => void) => Promise<readonly [Leases, Leases]>;

/** Creates work that runs until `finish` is called. */
function createWork() {
  const steps = new EventEmitter();
  const [begun, finished] = [once(steps, 'begun'), once(steps, 'finished')];
  return {
    work: async (): Promise<void> => {
      steps.emit('begun');
      await finished;
    },
    begun: () => within('the work has begun', begun),
    finish: () => void steps.emit('finished'),
  };
}

async function fail(): Promise<never> {
  throw new Error('the work failed');
}

/** Tests what leases do in every store. */
export function describeLeases(open: Open): void {
  describe('leases', () => {
    it('Of many holders of a lease, one works at a time, in any process', async ({ skip }) => {
      const [one, other] = await open(skip);
      let [running, most, done] = [0, 0, 0];
      const work = async (): Promise<void> => {
        running += 1;
        most = Math.max(most, running);
        await sleep(5);
        running -= 1;
        done += 1;
      };
      await Promise.all([one, other, one, other, one, other].map((leases) => leases.hold('compact', work)));
      expect([most, done]).toEqual([1, 6]);
    });

    it('A held lease is refused with the name of its holder, and another one is free', async ({ skip }) => {
      const [one, other] = await open(skip);
      const { work, begun, finish } = createWork();
      const holding = one.hold('maintain-events', work);
      await begun();
      const causes: string[] = [];
      const onWaiting = ({ message }: Error): void => void causes.push(message);
      const waiting = other.hold('maintain-events', async () => undefined, { waitMs: 700, onWaiting });
      await expect(waiting).rejects.toMatchObject({ code: 'locked', message: expect.stringContaining('the first') });
      expect(causes).toEqual([expect.stringContaining('the first')]);
      expect(await other.tryHold('maintain-events', async () => 'done')).toBeUndefined();
      expect(await one.tryHold('maintain-events', async () => 'done')).toBeUndefined();
      expect(await other.tryHold('maintain-users', async () => 'done')).toBe('done');
      finish();
      await holding;
      expect(await other.tryHold('maintain-events', async () => 'done')).toBe('done');
    });

    it('Work that fails releases its lease, and its error is that of the call', async ({ skip }) => {
      const [one, other] = await open(skip);
      await expect(one.hold('erase', fail)).rejects.toThrow('the work failed');
      await expect(other.tryHold('erase', fail)).rejects.toThrow('the work failed');
      expect(await one.tryHold('erase', async () => 'done')).toBe('done');
    });

    it('A signal ends the wait for a lease, and leaves its holder alone', async ({ skip }) => {
      const [one, other] = await open(skip);
      const { work, begun, finish } = createWork();
      const holding = one.hold('compact', async ({ assertHeld, lost }) => {
        await work();
        assertHeld();
        return lost.aborted;
      });
      await begun();
      const stopping = new AbortController();
      const waiting = other.hold('compact', async () => 'done', { signal: stopping.signal });
      stopping.abort(new Error('the service stops'));
      await expect(within('the wait ends', waiting)).rejects.toThrow('the service stops');
      finish();
      expect(await holding).toBe(false);
    });
  });
}
