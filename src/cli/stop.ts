import { dataPaths } from '../config.ts';
import { pause } from '../runtime/async/retry.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { isSameProcess } from '../runtime/processes/process-identity.ts';
import { readServiceStates, type ServiceState } from '../runtime/processes/service-state.ts';
import { resolveConfig, verb } from './command.ts';

/** A service ends its processes itself when they take too long: longer than that nothing is waited for. */
const patienceMs = 300_000;
const lookEveryMs = 100;

/** Sends SIGTERM to a service; one that has ended is none of its errors. Error: `disk`. */
export function askToStop({ pid }: Pick<ServiceState, 'pid'>): void {
  try {
    process.kill(pid, 'SIGTERM');
  } catch (error) {
    if (isSystemError(error, 'ESRCH')) return;
    throw new AppError('disk', `the service of pid ${pid} cannot be stopped`, {
      cause: error,
      hint: 'Run the command as the user that the service runs as.',
    });
  }
}

/** `tributary stop`: ends the services that run on the data folder as SIGTERM does, and waits until they have. */
export const stopCommand = verb({
  name: 'stop',
  summary: 'end the service that runs on the data folder, and wait until it has ended',
  details: ['As SIGTERM does: what was acknowledged is kept. One that a service manager runs is stopped by that.'],
  examples: ['stop', 'stop --data /srv/tributary/data'],
  async run({ data }, { environment, answer, note, show, stop }) {
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data });
    const services = readServiceStates(dataPaths(config.dataDir).run);
    if (services.length === 0) note(`No service runs on ${config.dataDir}.`);
    services.forEach(askToStop);
    const begun = performance.now();
    for (const { pid, processStart, startedAt } of services) {
      while (isSameProcess(pid, processStart)) {
        const seconds = Math.round((performance.now() - begun) / 1000);
        if (stop.aborted || performance.now() - begun > patienceMs)
          throw new AppError(
            'stopping',
            `the service of pid ${pid} was asked to stop ${seconds} s ago, and still runs`,
            {
              hint: 'Repeat the command to wait longer, or look at its log.',
            },
          );
        show?.(`waiting for the service of pid ${pid} to end, ${seconds} s`);
        await pause(lookEveryMs, stop);
      }
      show?.('');
      answer({ stopped: pid, startedAt });
    }
  },
});
