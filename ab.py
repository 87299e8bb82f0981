import subprocess,resource,os,sys,statistics,time
def run(b,args):
    t0=time.time(); p=subprocess.Popen([b]+args,stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL); _,st,ru=os.wait4(p.pid,0)
    return ru.ru_utime+ru.ru_stime, ru.ru_maxrss, time.time()-t0, st
for args in (['run','--tiers','1','many.bc'],['run','--tiers','1','hello.bc'],['run','hello.bc'],['run','many.bc']):
    res={b:[] for b in('old','new')}
    for i in range(int(sys.argv[1])):
        for b in (('old','new') if i%2 else ('new','old')): res[b].append(run('/tmp/uruk-'+b,args))
    o,n=res['old'],res['new']
    med=lambda r,k: statistics.median(x[k] for x in r)
    mn=lambda r,k: min(x[k] for x in r)
    print(args, 'cpu med',round(med(n,0)/med(o,0),3),'min',round(mn(n,0)/mn(o,0),3),'rss med',round(med(n,1)/med(o,1),4),'wall med',round(med(n,2)/med(o,2),3), 'abs new cpu',round(med(n,0),4),'rss',med(n,1), 'st',set(x[3] for x in n))
