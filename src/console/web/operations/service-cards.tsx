import { formatBytes, formatCount, formatShare, formatTime } from '../parts/format.ts';
import { sumRefusals, type Process, type Problem, type Status } from './status.ts';

const tones = { running: 'good', starting: 'busy', waiting: 'bad', stopped: 'warn' } as const;
const words = { running: 'runs', starting: 'starts', waiting: 'down', stopped: 'stopped' } as const;

/** The processes, and how often each was started again; `isOld`: as they were when the service was last reached. */
export function ProcessesCard({
  processes,
  isOld,
}: {
  readonly processes: readonly Process[];
  readonly isOld: boolean;
}) {
  return (
    <section class="card stack" aria-labelledby="processes">
      <h2 id="processes">Processes</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Processes and their restarts">
        <table>
          <thead>
            <tr>
              <th scope="col">Process</th>
              <th scope="col">State</th>
              <th scope="col" class="number">
                Restarts
              </th>
            </tr>
          </thead>
          <tbody>
            {processes.map(({ name, state, pid, restarts, lastError }) => (
              <tr key={`${name} ${pid}`}>
                <td>
                  {name}
                  {lastError !== undefined && <div class="muted small">{lastError}</div>}
                </td>
                <td>
                  <span class={`badge ${isOld ? '' : tones[state]}`}>{words[state]}</span>
                </td>
                <td class="number">{formatCount(restarts)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** How full the disks are; import stops taking events at the reserve. */
export function DisksCard({ status: { disks, diskReserveBytes } }: { readonly status: Status }) {
  return (
    <section class="card stack" aria-labelledby="disks">
      <h2 id="disks">Disks</h2>
      <ul class="stack">
        {disks.map(({ holds, freeBytes, totalBytes }) => {
          const isLow = freeBytes < diskReserveBytes * 2;
          const used = totalBytes === 0 ? 0 : 1 - freeBytes / totalBytes;
          return (
            <li key={holds.join()}>
              <div class="spread">
                <span>{holds.join(', ')}</span>
                <span class={isLow ? 'problem' : 'muted small'}>
                  {formatBytes(freeBytes)} free of {formatBytes(totalBytes)}, {formatShare(used)} used
                </span>
              </div>
              <span class={`share-bar whole${isLow ? ' low' : ''}`} aria-hidden="true">
                <span style={{ width: `${used * 100}%` }} />
              </span>
            </li>
          );
        })}
      </ul>
      <p class="muted small">Import stops taking events when {formatBytes(diskReserveBytes)} are free.</p>
    </section>
  );
}

/** Why requests were refused, since the processes of import began. */
export function RefusalsCard({ status }: { readonly status: Status }) {
  const refusals = sumRefusals(status);
  return (
    <section class="card stack" aria-labelledby="refusals">
      <h2 id="refusals">Refused requests since import began</h2>
      {refusals.length === 0 ? (
        <p class="muted">None.</p>
      ) : (
        <dl class="facts">
          {refusals.map(({ reason, requests }) => (
            <div class="fact" key={reason}>
              <dt>{reason.replaceAll('_', ' ')}</dt>
              <dd>{formatCount(requests)}</dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  );
}

/** What to look at while everything works. */
export function NoticesCard({ notices }: { readonly notices: readonly Problem[] }) {
  return (
    <section class="card stack" aria-labelledby="notices">
      <h2 id="notices">Worth a look</h2>
      {notices.length === 0 ? (
        <p class="muted">Nothing.</p>
      ) : (
        <ul class="stack">
          {notices.map(({ code, subject = '', what, todo, since }) => (
            <li key={`${code} ${subject}`}>
              <p>{what}</p>
              <p class="muted small">
                {todo}
                {since !== undefined && ` Since ${formatTime(Date.parse(since) / 1000)}.`}
              </p>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
