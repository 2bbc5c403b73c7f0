import { callApi } from '../frame/client.ts';
import { formatTime } from '../parts/format.ts';
import { useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';

/** The addresses that are told of ended exports; they are added by the API, which shows their secrets once. */
export function WebhookList() {
  const { data, error } = useLoaded((signal) => callApi('/api/webhook/v1/list.json', { signal }), []);
  if (data === undefined)
    return error === undefined ? <p class="muted">Loading…</p> : <Message kind="error">{error.message}</Message>;
  if (data.webhooks.length === 0)
    return (
      <div class="card empty">
        <h2>No webhooks yet</h2>
        <p>
          An address added by <code>POST /api/webhook/v1/create.json</code> is told when an export has ended.
        </p>
      </div>
    );
  return (
    <div class="scroll card flush" role="region" aria-label="Webhooks, to be scrolled" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Address</th>
            <th scope="col">Added</th>
          </tr>
        </thead>
        <tbody>
          {data.webhooks.map(({ idWebhook, url, timestampCreated }) => (
            <tr key={idWebhook}>
              <td class="wrap">{url}</td>
              <td class="nowrap">{formatTime(Number(timestampCreated))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
