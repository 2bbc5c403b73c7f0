import { setTimeout as pass } from 'node:timers/promises';
import type { Random } from '../../src/demo/random.ts';
import { processRoles, type ProcessRole } from './processes.ts';
import type { TestService } from './service.ts';

/** An erasure without a service starts a broker, and drains a stream of the long form's size. */
const folderHeldMs = 120_000;

/** One attack on the service: the processes to kill together, and how. */
export interface Blow {
  readonly roles: readonly ProcessRole[];
  /** Time for which each is suspended before the kill, ms; mostly 0. */
  readonly stoppedMs: number;
  /** Delay until the next attack, ms; undefined: the service may recover before. */
  readonly nextAfterMs: number | undefined;
  /** If the supervisor is killed: a further kill during the restart, with its delay. */
  readonly whileStarting: { readonly role: ProcessRole; readonly afterMs: number } | undefined;
}

/** Returns every role in random order, repeatedly, so that a short run kills each of them. */
function* roleOrder(random: Random): Generator<ProcessRole, never, void> {
  for (;;) {
    const round = [...processRoles];
    while (round.length > 0) yield round.splice(random.integer(0, round.length - 1), 1)[0] as ProcessRole;
  }
}

/**
 * Plans attacks without end: most hit one process, some several at once, some a suspended one, some one that is
 * restarting.
 */
export function* planBlows(random: Random): Generator<Blow, never, void> {
  const order = roleOrder(random);
  for (;;) {
    const role = order.next().value;
    // a broker whose supervisor dies with it would be neither restarted nor ended
    const others: ProcessRole[] =
      role === 'supervisor' && random.chance(0.4)
        ? ['nats-server']
        : random.chance(0.1)
          ? [random.pick(processRoles)]
          : [];
    yield {
      roles: [...new Set([role, ...others])],
      stoppedMs: random.chance(0.1) ? random.integer(50, 1500) : 0,
      nextAfterMs: random.chance(0.3) ? random.integer(0, 400) : undefined,
      whileStarting: random.chance(0.3)
        ? { role: random.pick(processRoles), afterMs: random.integer(0, 1200) }
        : undefined,
    };
  }
}

/** Starts the service, with retries for as long as a command may hold the folder. */
async function startAtLast(service: TestService): Promise<void> {
  const until = performance.now() + folderHeldMs;
  for (;;) {
    try {
      await service.startAgain();
      return;
    } catch (error) {
      if (!String(error).includes('is in use by') || performance.now() > until) throw error;
      await pass(500);
    }
  }
}

/** Starts the service again after its supervisor was killed, as a service manager would, with retries. */
async function bringBack(service: TestService, random: Random, blow: Blow): Promise<ProcessRole[]> {
  const starting = service.startAgain();
  starting.catch(() => undefined);
  const killed: ProcessRole[] = [];
  if (blow.whileStarting !== undefined) {
    const { role, afterMs } = blow.whileStarting;
    // the moment is random on purpose
    await pass(afterMs);
    if ((await service.kill9(role, random)) !== undefined) killed.push(role);
  }
  // a start that was hit reports its error, and another one must succeed: at once, unless an operator's offline command
  // holds the folder
  await starting.catch(() => startAtLast(service));
  if (killed.includes('supervisor') && !service.processes().some(({ role }) => role === 'supervisor'))
    await startAtLast(service);
  return killed;
}

/** Attacks once, and restarts processes that do not restart automatically. Returns the roles of killed processes. */
export async function strike(service: TestService, random: Random, blow: Blow): Promise<ProcessRole[]> {
  const hits = await Promise.all(
    blow.roles.map(async (role) => ((await service.kill9(role, random, blow.stoppedMs)) === undefined ? [] : [role])),
  );
  const killed = hits.flat();
  return killed.includes('supervisor') ? [...killed, ...(await bringBack(service, random, blow))] : killed;
}
