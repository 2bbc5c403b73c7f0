import { hrefOf } from '../shell/browser.ts';
import { session } from '../shell/session.ts';
import { loadDictionary } from '../new-export/draft.ts';
import { CopyButton } from './controls.tsx';
import { Card, Note } from './layout.tsx';
import { useLoaded } from './load.ts';

/** Returns a command that sends an event of an app. */
function curlOf(importUrl: string, idApp: string): string {
  return [
    `curl -H "Authorization: $TOKEN" "${importUrl}/v1/customEvent/?idApp=${idApp}" \\`,
    `  -d '{"customUserId":"ann","customEventName":"level_up","customEventParams":{"level":"3"}}'`,
  ].join('\n');
}

/** Shows how to send events of an app that has none. */
export function FirstEventCard({ idApp }: { readonly idApp: string }) {
  const { data } = useLoaded(() => loadDictionary(), []);
  const of = session.value;
  const importUrl = data?.importUrl ?? `${location.protocol}//${location.hostname}:${data?.importPort ?? 8080}`;
  const command = curlOf(importUrl, idApp);
  return (
    <Card id="first-event" title="No events yet" beside={<CopyButton text={command} label="Copy command" />}>
      <p>Send the first event of this app. It appears here within seconds:</p>
      <pre class="scroll code" tabIndex={0} role="region" aria-label="Command that sends an event">
        {command}
      </pre>
      <Note>
        <code>TOKEN</code> is an import token of the app.{' '}
        {typeof of === 'object' && of.isOperator ? (
          <a href={hrefOf('operations/apps')}>Add a token.</a>
        ) : (
          'An operator adds tokens on the page Operations.'
        )}{' '}
        Events of files: <code>tributary import FILE --app {idApp}</code>.
      </Note>
    </Card>
  );
}
