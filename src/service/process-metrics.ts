import type { RoleChild } from '../runtime/processes/child.ts';

/** What is asked of a process. */
type Asked = Pick<RoleChild, 'send'>;

/** The processes by name; one that does not run at the moment is not asked. */
type Processes = ReadonlyMap<string, { current(): Asked | undefined }>;

/** The metrics of the service's processes, asked for when somebody wants to see them. */
interface ProcessMetrics {
  /** Takes what a process has answered. */
  take(name: string, metrics: unknown[]): void;
  /** Forgets those of a process that is gone: they began at zero again with the next. */
  forget(name: string): void;
  /**
   * Asks the processes; one that does not answer in time is shown as it was when it last did. One that does not run is
   * left out: a gauge of what it saw last, such as that nothing waits, would say the opposite of what is.
   */
  collect(processes: Processes): Promise<readonly unknown[][]>;
}

const defaultAnswerMs = 1000;

/** Creates the collection; several who ask at once get one answer. */
export function createProcessMetrics(answerMs = defaultAnswerMs): ProcessMetrics {
  const newest = new Map<string, unknown[]>();
  const awaited = new Map<string, () => void>();
  let collecting: Promise<void> | undefined;

  function ask(name: string, child: Asked): Promise<void> {
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
