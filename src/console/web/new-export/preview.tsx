import { useEffect, useRef } from 'preact/hooks';
import type { CallArguments } from '../frame/call-arguments.ts';
import { callApi } from '../frame/client.ts';
import { formatCount } from '../parts/format.ts';
import { useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';

/** The first rows of the order, as they were when they were asked for. */
export function PreviewView({ asked, isOld }: { readonly asked: CallArguments; readonly isOld: boolean }) {
  const { data, error, isLoading } = useLoaded(
    (signal) => callApi('/api/raw/v1/export/preview.json', { method: 'POST', given: asked, signal }),
    [asked],
  );
  const preview = isLoading ? undefined : data;
  const place = useRef<HTMLElement>(null);
  useEffect(() => place.current?.scrollIntoView({ block: 'start' }), [asked]);

  return (
    <section ref={place} class="card stack looked-at" aria-labelledby="preview-title">
      <h2 id="preview-title">First rows</h2>
      {error !== undefined && <Message kind="error">{error.message}</Message>}
      {isOld && <p class="muted">The form has changed since: ask for the first rows again.</p>}
      {preview === undefined && error === undefined && <p class="muted">Reading…</p>}
      {preview?.rows.length === 0 && <p class="muted">There are no such rows.</p>}
      {preview !== undefined && preview.rows.length > 0 && (
        <>
          <div class="scroll" role="region" aria-label="First rows, to be scrolled" tabIndex={0}>
            <table class="preview">
              <thead>
                <tr>
                  {preview.columns.map((column) => (
                    <th key={column} scope="col">
                      {column}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {preview.rows.map((row, line) => (
                  <tr key={line}>
                    {row.map((cell, column) => (
                      <td key={column}>{cell}</td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <p class="muted small">
            {preview.isCut
              ? `The first ${formatCount(preview.rows.length)}; there are more.`
              : `All ${formatCount(preview.rows.length)} of them.`}
          </p>
        </>
      )}
    </section>
  );
}
