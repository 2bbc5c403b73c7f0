import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until a condition holds, looking every few milliseconds; fails with `what` after `forMs`. */
export async function waitFor(what: string, condition: () => boolean | Promise<boolean>, forMs = 20_000): Promise<void> {
  const deadline = performance.now() + forMs;
  while (!(await condition())) {
    if (performance.now() >= deadline) throw new Error(`timed out waiting until ${what}`);
    await sleep(10);
  }
}

/** Says whether a process with this id is there (a zombie counts as gone). */
export async function isRunning(pid: number): Promise<boolean> {
  const { readFile } = await import('node:fs/promises');
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    return !/\) [ZX] /.test(stat);
  } catch {
    return false;
  }
}
