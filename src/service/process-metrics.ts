import type { RoleChild } from '../runtime/processes/child.ts';

type Measured = Pick<RoleChild, 'send'>;

/** The processes by name. `current()` is undefined while a process does not run. */
type Processes = ReadonlyMap<string, { current(): Measured | undefined }>;

/** The metrics of the service's processes, collected at each scrape. */
interface ProcessMetrics {
  /** Stores the metrics that a process has sent. */
  take(name: string, metrics: unknown[]): void;
  /** Drops the metrics of an ended process: those of its successor begin at zero. */
  forget(name: string): void;
  /**
   * Requests the metrics of each running process. A process that does not send them in time keeps its last ones. A
   * stopped process has none: its last gauges would be wrong.
   */
  collect(processes: Processes): Promise<readonly unknown[][]>;
}

/** Creates the collection. Concurrent calls of `collect` share one request. `answerMs`: timeout of a process. */
export function createProcessMetrics(answerMs = 1000): ProcessMetrics {
  const newest = new Map<string, unknown[]>();
  const awaited = new Map<string, () => void>();
  let collecting: Promise<void> | undefined;

  function ask(name: string, child: Measured): Promise<void> {
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
    await Promise.all(running.map(({ name, child }) => ask(name, child)));
  }

  return {
    take(name, metrics) {
      newest.set(name, metrics);
      awaited.get(name)?.();
    },
    forget: (name) => void newest.delete(name),
    async collect(processes) {
      collecting ??= askAll(processes).finally(() => {
        collecting = undefined;
      });
      await collecting;
      return [...newest].flatMap(([name, metrics]) => (processes.get(name)?.current() === undefined ? [] : [metrics]));
    },
  };
}
