import { describe, expect, it, test } from 'vitest';
import { isAppError } from '../../../../src/runtime/errors.ts';
import { createLeases, type Leases } from '../../../../src/runtime/store/leases.ts';
import type { Lease } from '../../../../src/runtime/store/held-lease.ts';
import { openFakeStore, startFakeS3 } from '../../../helpers/fake-s3.ts';
import { isWhole } from '../../../helpers/in-turn.ts';
import { createSimulation, type SimulatedProcess, type Simulation } from '../../../helpers/simulated-processes.ts';
import { describeLeases } from './leases-suite.ts';

const leaseMs = 3000;
/** The time limit of a take-over. */
const takeOverMs = leaseMs + 5000;
const seeds = isWhole ? 1000 : 80;

describe('on S3', () => {
  describeLeases(async () => {
    const server = await startFakeS3();
    const open = async (holder: string): Promise<Leases> =>
      createLeases(await openFakeStore(server), { holder, leaseMs });
    return [await open('the first'), await open('the second')];
  });

  it('A lease whose take, renewal and release lose their responses is held and released all the same', async () => {
    const server = await startFakeS3();
    const leases = createLeases(await openFakeStore(server), { holder: 'the first', leaseMs: 900 });
    const lost: string[] = [];
    server.faultOf = ({ method, body }) => {
      const key = body.toString();
      if (method !== 'PUT' || lost.includes(key)) return undefined;
      lost.push(key);
      return { isDone: true, answer: 'cut' };
    };
    const work = async ({ epoch, lost: signal, assertHeld }: Lease): Promise<number> => {
      await expect.poll(() => lost.length).toBeGreaterThan(3);
      assertHeld();
      expect(signal.aborted).toBe(false);
      return epoch;
    };
    expect([await leases.hold('compact', work), await leases.hold('compact', work)]).toEqual([1, 2]);
    expect(await leases.list()).toEqual([{ name: 'compact', holder: 'the first', epoch: 2, isHeld: false }]);
  });
});

/** Opens the leases of a new process. */
function openIn(simulation: Simulation, holder: string, ownMs = leaseMs) {
  const simulated = simulation.startProcess();
  const { store, clock } = simulated;
  return { ...simulated, leases: createLeases(store, { holder, host: 'a1', leaseMs: ownMs, clock }) };
}

/** Work that lasts until its lease is lost, and then a while. */
const workUntilLost =
  ({ clock }: SimulatedProcess, onEnd: () => void = () => undefined) =>
  async ({ lost }: Lease): Promise<void> => {
    while (!lost.aborted) await clock.pause(100, lost);
    await clock.pause(700);
    onEnd();
  };

/** Reports whether a lease passes the check at this moment. */
function passes({ assertHeld }: Lease): boolean {
  try {
    assertHeld();
    return true;
  } catch (error) {
    if (!isAppError(error, 'lease_lost')) throw error;
    return false;
  }
}

describe('in simulated time', () => {
  it('A released lease is taken within a second, without the lease time', async () => {
    const simulation = createSimulation(1);
    const [one, other] = [openIn(simulation, 'the first'), openIn(simulation, 'the second')];
    const released: number[] = [];
    void one.leases.hold('compact', () => one.clock.pause(10_000)).then(() => released.push(simulation.nowMs()));
    await simulation.run(1000);
    const taken: number[] = [];
    void other.leases.hold('compact', async ({ epoch }) => void taken.push(epoch, simulation.nowMs()));
    await simulation.run(20_000);
    expect(taken).toEqual([2, expect.any(Number)]);
    expect((taken[1] ?? 0) - (released[0] ?? 0)).toBeLessThan(1000);
  });

  it('A holder that cannot renew loses the lease in time, and its work ends before the next begins', async () => {
    const simulation = createSimulation(2);
    const one = openIn(simulation, 'the first');
    const { network } = one;
    const happened: string[] = [];
    const loop = async (): Promise<void> => {
      for (;;) {
        await one.leases.hold('compact', async (lease) => {
          happened.push(`begins ${lease.epoch}`);
          lease.lost.addEventListener('abort', () => happened.push('lost'));
          await workUntilLost(one, () => happened.push('ends'))(lease);
        });
      }
    };
    void loop();
    await simulation.run(10_000);
    expect(happened).toEqual(['begins 1']);
    network.lost = 100;
    await simulation.run(leaseMs + 500);
    expect(happened).toEqual(['begins 1', 'lost', 'ends']);
    network.lost = 0;
    await simulation.run(takeOverMs);
    expect(happened.slice(3)).toEqual([expect.stringMatching(/^begins [23]$/)]);
  });

  it('A stopped holder fails the check as soon as it resumes, also if no other process has the lease', async () => {
    const simulation = createSimulation(3);
    const one = openIn(simulation, 'the first');
    let lease: Lease | undefined;
    void one.leases.hold('compact', async (held) => {
      lease = held;
      await workUntilLost(one)(held);
    });
    await simulation.run(leaseMs);
    if (lease === undefined) throw new Error('the lease is not held');
    expect(passes(lease)).toBe(true);
    one.stopFor(leaseMs);
    await simulation.run(leaseMs - 1);
    expect(lease.lost.aborted).toBe(false);
    expect(passes(lease)).toBe(false);
    expect(lease.lost.aborted).toBe(true);
  });

  it('A request without a response does not cost the lease', async () => {
    const simulation = createSimulation(4);
    const one = openIn(simulation, 'the first');
    const { network } = one;
    Object.assign(network, { timeoutMs: 60_000, delayMs: 20 });
    let lease: Lease | undefined;
    void one.leases.hold('compact', async (held) => {
      lease = held;
      await workUntilLost(one)(held);
    });
    await simulation.run(5000);
    for (let round = 0; round < 100; round += 1) {
      network.lost = 100;
      // At most one renewal begins in this time.
      await simulation.run(leaseMs / 6);
      network.lost = 0;
      await simulation.run(leaseMs);
    }
    expect([lease?.epoch, lease?.lost.aborted]).toEqual([1, false]);
  });

  it('A silent holder is replaced within the lease time and five seconds, also by repeated attempts', async () => {
    for (let seed = 0; seed < 50; seed += 1) {
      const simulation = createSimulation(seed);
      const [one, other] = [openIn(simulation, 'the first'), openIn(simulation, 'the second')];
      void one.leases.hold('compact', workUntilLost(one));
      const taken: number[] = [];
      const take = async ({ epoch }: Lease): Promise<void> => void taken.push(epoch);
      await simulation.run(1000);
      if (seed % 2 === 0) void other.leases.hold('compact', take);
      else {
        const retry = async (): Promise<void> => {
          while (taken.length === 0) {
            await other.leases.tryHold('compact', take);
            await other.clock.pause(700);
          }
        };
        void retry();
      }
      await simulation.run(1000 + simulation.random(5000));
      expect(taken).toEqual([]);
      one.kill();
      await simulation.run(takeOverMs);
      expect(taken, `seed ${seed}`).toEqual([2]);
    }
  });

  it('A renewal in flight does not undo a release', async () => {
    for (let seed = 0; seed < 100; seed += 1) {
      const simulation = createSimulation(seed);
      const [one, other] = [openIn(simulation, 'the first', 30_000), openIn(simulation, 'the second')];
      void one.leases.hold('compact', async () => {
        // The first renewal begins after ten seconds.
        one.network.delayMs = 3000;
        await one.clock.pause(10_000 + simulation.random(4000));
      });
      await simulation.run(35_000);
      let isTaken = false;
      void other.leases.tryHold('compact', async () => void (isTaken = true));
      await simulation.run(1000);
      expect(isTaken, `seed ${seed}`).toBe(true);
    }
  });

  it('A release without a response ends in a third of the lease time', async () => {
    const simulation = createSimulation(9);
    const one = openIn(simulation, 'the first');
    let isEnded = false;
    void one.leases.hold('erase', () => one.clock.pause(3000)).then(() => (isEnded = true));
    await simulation.run(2000);
    Object.assign(one.network, { lost: 100, timeoutMs: 60_000 });
    await simulation.run(2000 + 1.2 * (leaseMs / 3));
    expect(isEnded).toBe(true);
  });

  it('A holder keeps the time that it has promised, even if a taker has a shorter one', async () => {
    const simulation = createSimulation(5);
    const [one, other] = [openIn(simulation, 'the first', 60_000), openIn(simulation, 'the second', 600)];
    let lease: Lease | undefined;
    void one.leases.hold('compact', async (held) => {
      lease = held;
      await workUntilLost(one)(held);
    });
    await simulation.run(1000);
    let isTaken = false;
    void other.leases.hold('compact', async () => void (isTaken = true));
    await simulation.run(300_000);
    expect([isTaken, lease?.lost.aborted]).toEqual([false, false]);
  });

  it('The holder of a removed lease loses it, and the next one begins with the first epoch', async () => {
    const simulation = createSimulation(6);
    const [one, other] = [openIn(simulation, 'the first'), openIn(simulation, 'the second')];
    let lease: Lease | undefined;
    void one.leases.hold('job-1', async (held) => {
      lease = held;
      await workUntilLost(one)(held);
    });
    await simulation.run(1000);
    void other.leases.remove(['job-1']);
    await simulation.run(leaseMs);
    expect(lease?.lost.reason).toMatchObject({ code: 'lease_lost', message: expect.stringContaining('removed') });
    const epochs: number[] = [];
    void other.leases.hold('job-1', async ({ epoch }) => void epochs.push(epoch));
    await simulation.run(1000);
    expect(epochs).toEqual([1]);
  });

  it('A list says which leases are held once it has observed them, and not before', async () => {
    const simulation = createSimulation(7);
    const [one, other] = [openIn(simulation, 'the first'), openIn(simulation, 'the second')];
    const listed: unknown[] = [];
    const list = async (): Promise<void> => {
      const states = await other.leases.list();
      listed.push(Object.fromEntries(states.map(({ name, isHeld }) => [name, isHeld])));
    };
    void one.leases.hold('compact', workUntilLost(one));
    void one.leases.hold('erase', async () => undefined);
    await simulation.run(1000);
    void list();
    await simulation.run(leaseMs / 2);
    void list();
    await simulation.run(leaseMs / 2);
    one.kill();
    // It has renewed the lease since the last list, but too long ago for the next one.
    for (let round = 0; round < 2; round += 1) {
      await simulation.run(1.5 * leaseMs);
      void list();
    }
    await simulation.run(500);
    expect(listed).toEqual([
      { compact: undefined, erase: false },
      { compact: true, erase: false },
      { compact: undefined, erase: false },
      { compact: false, erase: false },
    ]);
    const states = await Promise.all([other.leases.list(), simulation.run(1000)]);
    expect(states[0].find(({ name }) => name === 'compact')).toMatchObject({
      holder: 'the first',
      host: 'a1',
      epoch: 1,
    });
  });

  it('A name that is not valid, or a damaged lease, is an error', async () => {
    const simulation = createSimulation(8);
    const { leases } = openIn(simulation, 'the first');
    for (const name of ['', '../keys', 'a/b', 'a.json', 'é'])
      await expect(leases.hold(name, async () => undefined)).rejects.toThrow('is not a valid name of a lease');
    simulation.objects.set('leases/erase.json', { bytes: Buffer.from('{}'), tag: '#1' });
    const holding = leases.hold('erase', async () => undefined).catch((error: unknown) => error);
    await simulation.run(1000);
    expect(await holding).toMatchObject({ code: 'record_damaged' });
  });
});

const calm = { delayMs: 50, lost: 0 };

/** Runs processes that compete for a lease under random faults. Returns what must not happen. */
async function compete(seed: number): Promise<readonly string[]> {
  const simulation = createSimulation(seed);
  const { random } = simulation;
  const wrong: string[] = [];
  const holders = new Set<{ readonly lease: Lease; readonly simulated: SimulatedProcess }>();
  const epochs: number[] = [];
  let heldMs = 0;

  const startProcess = (): SimulatedProcess => {
    const { leases, ...simulated } = openIn(simulation, 'a process');
    const { clock } = simulated;
    let running = 0;
    const work = async (lease: Lease): Promise<void> => {
      const holder = { lease, simulated };
      if (lease.epoch <= (epochs.at(-1) ?? 0)) wrong.push(`epoch ${lease.epoch} follows ${epochs.at(-1)}`);
      epochs.push(lease.epoch);
      holders.add(holder);
      running += 1;
      if (running > 1) wrong.push('a process works twice at the same time');
      const endsMs = clock.nowMs() + (random(3) === 0 ? Infinity : random(4000));
      while (!lease.lost.aborted && clock.nowMs() < endsMs) await clock.pause(1 + random(300), lease.lost);
      await clock.pause(random(1000));
      running -= 1;
      holders.delete(holder);
    };
    const loop = async (): Promise<void> => {
      for (;;) {
        if (random(4) === 0) await leases.tryHold('compact', work).catch(() => undefined);
        else await leases.hold('compact', work);
        await clock.pause(random(800));
      }
    };
    loop().catch((error: unknown) => wrong.push(String(error)));
    return simulated;
  };

  const processes = Array.from({ length: 2 + random(3) }, startProcess);
  let isDisturbed = true;
  const disturb = (): void => {
    if (!isDisturbed) return;
    const place = random(processes.length);
    const chosen = processes[place] ?? startProcess();
    const kinds = [
      () => chosen.stopFor(random(4 * leaseMs)),
      () => {
        chosen.kill();
        processes[place] = startProcess();
      },
      () => Object.assign(chosen.network, { delayMs: 1 + random(random(2) === 0 ? 50 : 1500) }),
      () => Object.assign(chosen.network, { lost: random(3) === 0 ? 100 : random(40) }),
      () => processes.forEach(({ network }) => Object.assign(network, calm)),
    ];
    kinds[random(kinds.length)]?.();
    simulation.after(random(3000), disturb);
  };
  const check = (): void => {
    // Not always: the check also ends a lease, which its timer has to do.
    if (random(2) === 0) return;
    const held = [...holders].filter(({ lease, simulated }) => simulated.canRun() && passes(lease));
    if (held.length > 1) wrong.push(`${held.length} holders at ${simulation.nowMs()}`);
    if (held.length > 0) heldMs = simulation.nowMs();
  };
  disturb();
  await simulation.run(40_000, check);
  isDisturbed = false;
  for (const { network } of processes) Object.assign(network, calm);
  // The last stops end, and a process holds the lease again.
  await simulation.run(4 * leaseMs + takeOverMs, check);
  if (simulation.nowMs() - heldMs > takeOverMs) wrong.push(`no process has held the lease since ${heldMs}`);
  return wrong;
}

test('Under stops, kills, lost and late responses, no two processes hold a lease, and epochs increase', async () => {
  for (let seed = 0; seed < seeds; seed += 1) expect(await compete(seed), `seed ${seed}`).toEqual([]);
}, 600_000);
