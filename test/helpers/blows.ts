import { setTimeout as pass } from 'node:timers/promises';
import type { Random } from '../../src/demo/random.ts';
import { processRoles, type ProcessRole } from './processes.ts';
import type { TestService } from './service.ts';

/** An erasure without a service runs one for itself, and drains a stream of the long form's size. */
const folderHeldMs = 120_000;

/** One blow against the service: what is killed together, and how. */
export interface Blow {
  readonly roles: readonly ProcessRole[];
  /** How long each stands still before it is killed, milliseconds; mostly not at all. */
  readonly stoppedMs: number;
  /** Whether the service may recover before the next blow; if not, it comes so many milliseconds later. */
  readonly nextAfterMs: number | undefined;
  /** When the supervisor is among them: what is killed while it comes back, and how long after its start. */
  readonly whileStarting: { readonly role: ProcessRole; readonly afterMs: number } | undefined;
}

/** Every role in random order, again and again, so that a short run kills each of them too. */
function* roleOrder(random: Random): Generator<ProcessRole, never, void> {
  for (;;) {
    const round = [...processRoles];
    while (round.length > 0) yield round.splice(random.integer(0, round.length - 1), 1)[0] as ProcessRole;
  }
}

/**
 * Plans blows without end: most hit one process, some several at once, some one that has stood still, some one that is
 * only coming back.
 */
export function* planBlows(random: Random): Generator<Blow, never, void> {
  const order = roleOrder(random);
  for (;;) {
    const role = order.next().value;
    // a broker whose supervisor goes with it has nobody left who would start it, and nobody who would end it
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

/** Starts the service, as often as it takes: for as long as a command may hold the folder. */
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

/** Starts the service again after its supervisor was killed, as a service manager would: as often as it takes. */
async function bringBack(service: TestService, random: Random, blow: Blow): Promise<ProcessRole[]> {
  const starting = service.startAgain();
  starting.catch(() => undefined);
  const killed: ProcessRole[] = [];
  if (blow.whileStarting !== undefined) {
    const { role, afterMs } = blow.whileStarting;
    // the moment is the test: nothing is waited for
    await pass(afterMs);
    if ((await service.kill9(role, random)) !== undefined) killed.push(role);
  }
  // a start that was hit says why it failed, and another one must succeed: at once, unless an operator's command that
  // works without a service has the folder just then
  await starting.catch(() => startAtLast(service));
  if (killed.includes('supervisor') && !service.processes().some(({ role }) => role === 'supervisor'))
    await startAtLast(service);
  return killed;
}

/** Strikes once, and brings back what does not come back by itself. Returns the roles of which a process was killed. */
export async function strike(service: TestService, random: Random, blow: Blow): Promise<ProcessRole[]> {
  const hits = await Promise.all(
    blow.roles.map(async (role) => ((await service.kill9(role, random, blow.stoppedMs)) === undefined ? [] : [role])),
  );
  const killed = hits.flat();
  return killed.includes('supervisor') ? [...killed, ...(await bringBack(service, random, blow))] : killed;
}
