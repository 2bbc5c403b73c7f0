import { hrefOf, path } from '../frame/router.ts';
import { AppsPart } from './apps-part.tsx';
import { ServicePart } from './service-part.tsx';
import { UsersPart } from './users-part.tsx';

const parts = [
  { path: '', title: 'Service', component: ServicePart },
  { path: 'apps', title: 'Apps', component: AppsPart },
  { path: 'users', title: 'Users', component: UsersPart },
] as const;

/** What operators see and change: the service, apps and their tokens, users and their secrets. */
export function OperationsPage() {
  const [, below = ''] = path.value.split('/');
  const shown = parts.find((part) => part.path === below) ?? parts[0];
  const Part = shown.component;
  return (
    <>
      <div class="page-head">
        <h1 tabIndex={-1}>Operations</h1>
        <nav class="part-tabs" aria-label="Parts of Operations">
          {parts.map((part) => (
            <a
              key={part.path}
              href={hrefOf(part.path === '' ? 'operations' : `operations/${part.path}`)}
              aria-current={part === shown ? 'page' : undefined}
            >
              {part.title}
            </a>
          ))}
        </nav>
      </div>
      <Part />
    </>
  );
}
