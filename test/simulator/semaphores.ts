import type * as semaphores from '../../src/runtime/async/semaphore.ts';
import { activeWorld } from './world.ts';

export type Semaphores = Pick<typeof semaphores, 'createKeyedSemaphore' | 'createMutex'>;

const noProcess = {};

/**
 * The doubles of semaphores: each process has its own, also those of a module, which all simulated processes share. So
 * nothing waits for a killed process.
 */
export function ofProcesses({ createKeyedSemaphore }: Semaphores): Semaphores {
  const createOwn: Semaphores['createKeyedSemaphore'] = (width, total) => {
    const known = new WeakMap<object, semaphores.KeyedSemaphore>();
    function current(): semaphores.KeyedSemaphore {
      const owner = activeWorld()?.current() ?? noProcess;
      const own = known.get(owner) ?? createKeyedSemaphore(width, total);
      known.set(owner, own);
      return own;
    }
    return {
      run: (key, task, signal) => current().run(key, task, signal),
      count: (key) => current().count(key),
    };
  };
  return {
    createKeyedSemaphore: createOwn,
    createMutex() {
      const own = createOwn();
      return { run: (task) => own.run(0, task) };
    },
  };
}
