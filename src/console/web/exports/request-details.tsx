import { useState } from 'preact/hooks';
import type { ApiError } from '../frame/client.ts';
import { navigate } from '../frame/router.ts';
import { loadDictionary } from '../new-export/dictionary.ts';
import { startFrom } from '../new-export/draft.ts';
import { toDraft } from '../new-export/order.ts';
import { CopyButton } from '../parts/copy-button.tsx';
import { formatAway, formatBytes, formatCount, formatTime } from '../parts/format.ts';
import { toApiError, useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { cancelExport, getExport, isInProgress, type ExportLine, type ExportState } from './requests.ts';
import { ScheduleForm } from './schedule-form.tsx';

function fileNameOf(link: string): string {
  return new URL(link).pathname.split('/').at(-1) ?? '';
}

/** The files of a finished export, each with its link and what it has to be. */
function Files({ state }: { readonly state: ExportState }) {
  const { files = [], archive, manifest } = state;
  if (files.length === 0) return null;
  return (
    <div class="stack">
      <div class="scroll" role="region" aria-label="Files, to be scrolled" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">File</th>
              <th scope="col" class="number">
                Rows
              </th>
              <th scope="col" class="number">
                Size
              </th>
              <th scope="col">SHA-256</th>
            </tr>
          </thead>
          <tbody>
            {files.map(({ link, rows, bytes, sha256 }) => (
              <tr key={link}>
                <td>
                  <a href={link} download>
                    {fileNameOf(link)}
                  </a>
                </td>
                <td class="number">{formatCount(rows)}</td>
                <td class="number">{formatBytes(bytes)}</td>
                <td>
                  <span class="row nowrap-row">
                    <code title={sha256}>{sha256.slice(0, 12)}…</code>
                    <CopyButton text={sha256} label="Copy checksum" />
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="row">
        {files.length === 1 && files[0] !== undefined && (
          <a class="button primary" href={files[0].link} download>
            Download
          </a>
        )}
        {archive !== undefined && (
          <a class={files.length === 1 ? 'button' : 'button primary'} href={archive.link} download>
            {files.length === 1 ? 'As zip' : 'Download all as zip'}
          </a>
        )}
        {manifest !== undefined && (
          <a class="button" href={manifest.link} download>
            Signed manifest
          </a>
        )}
        <CopyButton
          text={files.map(({ link }) => link).join('\n')}
          label={files.length === 1 ? 'Copy link' : 'Copy links'}
        />
        <span class="muted small">
          The links are yours and end {formatAway(Number(files[0]?.timestampExpires))},{' '}
          {formatTime(Number(files[0]?.timestampExpires))}.
        </span>
      </div>
    </div>
  );
}

/** What was ordered, name by name. */
function Order({ line }: { readonly line: ExportLine }) {
  const given = Object.entries(line.arguments ?? {}).filter(([name]) => name !== 'event');
  return (
    <details>
      <summary>What was ordered</summary>
      <dl class="order-list">
        {given.map(([name, value]) => (
          <div key={name}>
            <dt>
              <code>{name}</code>
            </dt>
            <dd>
              {typeof value === 'string' ? value : value.join(', ')}
              {/^(ts|availabilityTs)/.test(name) && (
                <span class="muted">
                  {' '}
                  ({formatTime(Number(value), String(line.arguments?.['timezone']), '2-digit')})
                </span>
              )}
            </dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

/** What can be done with an export, and what has come of it. */
export function RequestDetails({ line, onChange }: { readonly line: ExportLine; readonly onChange: () => void }) {
  const { idRawExport, status } = line;
  const [error, setError] = useState<ApiError>();
  const [isScheduling, setScheduling] = useState(false);
  // Links are signed anew for each answer; the state is another one when the list says so.
  const state = useLoaded((signal) => getExport(idRawExport, signal), [idRawExport, status]);

  async function act(work: () => Promise<void>): Promise<void> {
    setError(undefined);
    await work().catch((caught: unknown) => setError(toApiError(caught)));
    onChange();
  }

  async function repeat(): Promise<void> {
    if (line.arguments === undefined) return;
    startFrom(toDraft(line.arguments, await loadDictionary()));
    navigate('');
  }

  return (
    <div class="details stack">
      {line.errorMessage !== undefined && <Message kind="error">{line.errorMessage}</Message>}
      {status === 'Error occurred' && (
        <Message kind="error">
          The service could not make it. Order it again; if that does not help, tell the operator its number.
        </Message>
      )}
      {state.data === undefined && state.error === undefined && <p class="muted">Loading…</p>}
      {state.error !== undefined && <Message kind="error">{state.error.message}</Message>}
      {state.data !== undefined && <Files state={state.data} />}
      {error !== undefined && <Message kind="error">{error.message}</Message>}
      <Order line={line} />
      <div class="row">
        {isInProgress(line) && (
          <button type="button" class="button danger" onClick={() => void act(() => cancelExport(idRawExport))}>
            Cancel the export
          </button>
        )}
        {line.arguments !== undefined && (
          <>
            <button type="button" class="button" onClick={() => void act(repeat)}>
              Order again…
            </button>
            <button
              type="button"
              class="button"
              aria-expanded={isScheduling}
              onClick={() => setScheduling(!isScheduling)}
            >
              Make a schedule…
            </button>
          </>
        )}
      </div>
      {isScheduling && line.arguments !== undefined && <ScheduleForm ordered={line.arguments} />}
    </div>
  );
}
