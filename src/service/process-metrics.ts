import type { RoleChild } from '../runtime/processes/child.ts';

type Measured = Pick<RoleChild, 'send'>;

/** The processes by name. `current()` is undefined while a process does not run. */
type Processes = ReadonlyMap<string, { current(): Measured | undefined }>;

/** Creates the collection of the processes' metrics, one per scrape. `answerMs`: timeout of a process. */
export function createProcessMetrics(answerMs = 1000) {
  const newest = new Map<string, unknown[]>();
  const awaited = new Map<string, () => void>();
  let collecting: Promise<void> | undefined;

  function requestMetrics(name: string, child: Measured): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, answerMs);
      awaited.set(name, () => {
        clearTimeout(timer);
        resolve();
      });
      child.send({ type: 'measure' });
    });
  }

  async function askAll(processes: Processes): Promise<void> {
    const running = [...processes].flatMap(([name, supervisor]) => {
      const child = supervisor.current();
      return child === undefined ? [] : [{ name, child }];
    });
    await Promise.all(running.map(({ name, child }) => requestMetrics(name, child)));
  }

  return {
    /** Stores the metrics that a process has sent. */
    take(name: string, metrics: unknown[]): void {
      newest.set(name, metrics);
      awaited.get(name)?.();
    },
    /** Drops the metrics of an ended process: those of its successor begin at zero. */
    forget: (name: string): void => void newest.delete(name),
    /** Requests the metrics of each running process; one that does not respond keeps its last ones. */
    async collect(processes: Processes): Promise<readonly unknown[][]> {
      collecting ??= askAll(processes).finally(() => {
        collecting = undefined;
      });
      await collecting;
      return [...newest].flatMap(([name, metrics]) => (processes.get(name)?.current() === undefined ? [] : [metrics]));
    },
  };
}
