import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pass } from 'node:timers/promises';
import type { Random } from '../../src/demo/random.ts';
import { planBlows, strike } from './blows.ts';
import { importEvent } from './every-place.ts';
import type { ExportClient } from './export-client.ts';
import type { Ledger } from './ledger.ts';
import { isAlive, processRoles, signalProcess } from './processes.ts';
import type { TestService } from './service.ts';
import type { SmallDisk } from './small-disk.ts';

/** Dependencies of the actions. */
export interface EverythingDependencies {
  readonly service: TestService;
  readonly client: ExportClient;
  readonly random: Random;
  readonly token: string;
  /** Events whose key is used again. */
  readonly reused: Ledger;
  /** The query of every export. */
  readonly exportQuery: string;
  /** Disks that can be filled; none if the system cannot mount one. */
  readonly disks: readonly SmallDisk[];
  /** Duration of a suspended process, and of a full disk, ms. */
  readonly stopMs: number;
  readonly fullMs: number;
  /** Waits until the service acknowledges events again. */
  readonly recovered: () => Promise<void>;
}

/** The actions of a run, and the events to account for. */
export interface Everything {
  /** Does one random action. */
  act(): Promise<void>;
  /** Number of times that each action was done. */
  readonly counts: Readonly<Record<string, number>>;
  readonly requests: readonly string[];
  readonly mayBeCanceled: ReadonlySet<string>;
  /** Erases the persons that no erasure has reached yet. */
  eraseAll(): Promise<void>;
}

/** Offsets of the service's clock, seconds: within the day for which keys are remembered. */
const clockOffsets = [0, 1, 60, 3600, 5 * 3600, 11 * 3600, 20 * 3600] as const;
const commandTries = 20;

/** Creates the actions of a run with all disturbances; the seed decides their order. */
export function createEverything({
  service,
  client,
  random,
  token,
  reused,
  exportQuery,
  disks,
  stopMs,
  fullMs,
  recovered,
}: EverythingDependencies): Everything {
  const counts: Record<string, number> = {};
  const requests: string[] = [];
  const mayBeCanceled = new Set<string>();
  const blows = planBlows(random);
  const forgotten: string[] = [];
  let users = 0;

  const count = (what: string, times = 1): void => void (counts[what] = (counts[what] ?? 0) + times);

  /** Runs a command as an operator who retries while the service restarts. */
  async function command(...words: readonly string[]): Promise<void> {
    for (let left = commandTries; ; left -= 1) {
      try {
        await service.command(...words);
        return;
      } catch (error) {
        if (left === 0) throw error;
        await pass(500);
      }
    }
  }

  const actions = {
    async kill() {
      const blow = blows.next().value;
      if (blow.roles.includes('job')) await this.export();
      count('kills', (await strike(service, random, blow)).length);
    },
    async stop() {
      const role = random.pick(processRoles);
      const candidates = service.processes().filter((candidate) => candidate.role === role);
      if (candidates.length === 0) return;
      const { pid } = random.pick(candidates);
      if (!signalProcess(pid, 'SIGSTOP')) return;
      count('stops');
      await pass(stopMs);
      if (isAlive(pid)) signalProcess(pid, 'SIGCONT');
    },
    async fillDisk() {
      const disk = disks.length === 0 ? undefined : random.pick(disks);
      if (disk === undefined) return;
      count('fullDisks');
      disk.fill(0);
      await pass(fullMs);
      disk.empty();
    },
    async stepClock() {
      count('clockSteps');
      await service.stop();
      await service.startAgain({ TRIBUTARY_CLOCK_OFFSET_SECONDS: String(random.pick(clockOffsets)) });
    },
    async reuseKey() {
      count('keysReused');
      const name = reused.nextId();
      await importEvent(service, token, { key: name, name, user: 'steady' });
      reused.record([name], 'acknowledged');
      await importEvent(service, token, {
        key: name,
        name: random.chance(0.5) ? name : `another body of ${name}`,
        user: random.chance(0.5) ? 'steady' : 'another',
        isReuse: true,
      });
    },
    async forget() {
      users += 1;
      const user = `forgotten-${users}`;
      for (let n = 0; n < 3; n += 1)
        await importEvent(service, token, { key: `${user}-${n}`, name: `${user}-${n}`, user });
      forgotten.push(user);
    },
    async erase() {
      await this.forget();
      const user = forgotten.shift();
      if (user === undefined) return;
      count('erasures');
      await command('erase', '--user', user);
    },
    async replay() {
      count('replays');
      await command('failed', 'replay');
    },
    async export() {
      const id = await client.create(exportQuery);
      if (id === undefined) return;
      count('exports');
      requests.push(id);
    },
    async cancel() {
      await this.export();
      const id = requests.at(-1);
      if (id === undefined) return;
      count('cancels');
      mayBeCanceled.add(id);
      await pass(random.integer(0, 500));
      await client.cancel(id);
    },
  };
  const weights: readonly (keyof typeof actions)[] = [
    'kill',
    'kill',
    'kill',
    'kill',
    'stop',
    'fillDisk',
    'stepClock',
    'reuseKey',
    'reuseKey',
    'forget',
    'erase',
    'replay',
    'export',
    'export',
    'cancel',
  ];
  /** Every action in random order, repeatedly, so that a short run has each of them. */
  let round: (keyof typeof actions)[] = [];

  return {
    counts,
    requests,
    mayBeCanceled,
    async act() {
      if (round.length === 0)
        round = weights
          .map((name) => ({ name, at: random.next() }))
          .toSorted((a, b) => a.at - b.at)
          .map(({ name }) => name);
      const name = round.pop() ?? 'kill';
      process.stderr.write(`everything: ${name}\n`);
      // Actions that need the service may run during an attack; those that change the processes wait for its end.
      const beside =
        random.chance(0.3) && ['reuseKey', 'erase', 'replay', 'cancel'].includes(name)
          ? strike(service, random, blows.next().value).then((killed) => count('kills', killed.length))
          : undefined;
      await Promise.all([actions[name](), beside]);
      if (random.chance(0.7)) await recovered();
    },
    async eraseAll() {
      for (const user of forgotten.splice(0)) await command('erase', '--user', user);
    },
  };
}

/** Returns processes with a folder in their command line. */
export function findProcessesOf(folder: string): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((name) => {
      try {
        const words = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
        return words.includes(folder) ? [`${name} ${words}`] : [];
      } catch {
        return [];
      }
    });
}
